// Attention over a cache of 16-bit keys and values.
//
// A query's result depends on that query and on the keys and values that its mask shows, in the order
// of their cells, to the bit: not on other queries, on masked cells between them, or on how the work
// is shared out. What a query sees is cut into chunks of so many cells *that it sees*; a chunk is
// summed from its first cell to its last, and chunks are folded together in order. So a query's
// chunks can be computed by several threads (Dao et al., 2023, Flash-Decoding).
//
// Keys and values are read once for all queries of a tile, so its tokens see much the same cells. In a
// pass over many conversations they are those of one: see `cohorts.h`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohorts.h"
#include "ggml.h"

namespace spec_cpu {

// True for FLASH_ATTN_EXT as `Attention` covers it: F16 keys and values, a mask, no bias by distance,
// no cap of the logits, no sinks.
bool is_attention(const ggml_tensor * op);

// What a thread works with.
struct AttentionScratch {
    std::vector<uint16_t> masks, halves;
    std::vector<float> weights, rows, partials;
};

// Queries of one head of keys, of the tokens of one cohort. A task is a run of their chunks.
struct AttentionTile {
    int64_t cohort, head;
    int64_t first, queries;  // of the cohort's, token by token
    int64_t chunks, run_length;
    int64_t first_task, tasks;
    size_t partials;  // where the results of its chunks begin, if there are several tasks
};

// One operation at a time, by several threads. For each: one calls `reserve`, then all call `look`. The
// one to whom it says true calls `share_out`. After that all may call `run`, for different tasks.
class Attention {
  public:
    void reserve(const ggml_tensor * op);
    bool look(const ggml_tensor * op, int thread, int threads);
    void share_out(const ggml_tensor * op, int threads);
    int64_t tasks() const { return tasks_; }
    void run(const ggml_tensor * op, int64_t task, AttentionScratch & scratch);

    const Cohorts & cohorts() const { return cohorts_; }

  private:
    void cut_into_tiles(const ggml_tensor * op, int threads);

    Cohorts cohorts_;
    std::atomic<int> looking_{0};
    std::vector<AttentionTile> tiles_;
    std::vector<std::atomic<int>> done_;  // tasks of each tile
    std::vector<float> partials_;
    int64_t tasks_ = 0;
};

}  // namespace spec_cpu
