// Attention over a cache of 16-bit keys and values.
//
// A query's result depends on that query and on the keys and values that its mask shows, in the order
// of their cells, to the bit: not on other queries, on masked cells between them, or on how the work
// is shared out. What a query sees is cut into chunks of so many cells *that it sees*; a chunk is
// summed from its first cell to its last, and chunks are folded together in order. So a query's
// chunks can be computed by several threads (Dao et al., 2023, Flash-Decoding).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ggml.h"

namespace spec_cpu {

// True for FLASH_ATTN_EXT as `Attention` covers it: F16 keys and values, a mask, no bias by distance,
// no cap of the logits, no sinks.
bool is_attention(const ggml_tensor * op);

// What a thread works with.
struct AttentionScratch {
    std::vector<int32_t> cells;
    std::vector<uint16_t> masks;
    std::vector<float> weights, rows, partials;
};

// How one operation is shared out. A task is a tile of the queries of one head of keys, whose keys
// and values are read once for all of them, and a run of the tile's chunks.
class Attention {
  public:
    Attention(const ggml_tensor * op, int threads);

    int64_t tasks() const { return tiles() * runs; }
    int64_t tiles() const { return streams * heads * tiles_of_a_head; }

    // Floats that the tasks of a tile leave for the last of them.
    size_t partials() const;

    // Computes one task; tasks may run at once. `done` counts the tasks of each tile: 0 before the
    // first and behind the last.
    void run(int64_t task, AttentionScratch & scratch, float * partials, std::atomic<int> * done) const;

    const ggml_tensor * op;
    int64_t streams;    // sequences with a cache of their own each
    int64_t heads;      // of keys and values
    int64_t group;      // heads of queries for each of them
    int64_t queries;    // that attend to a head of keys: those of its group, token by token
    int64_t positions;  // cells
    int64_t width, value_width;
    float scale;
    int64_t tile;       // queries in a tile, at most
    int64_t tiles_of_a_head;
    int64_t chunks;     // of a query, at most
    int64_t run_length; // chunks in a task, at most
    int64_t runs;       // tasks of a tile

  private:
    void share_out(int64_t wanted);
};

}  // namespace spec_cpu
