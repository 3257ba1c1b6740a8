// Running a piece of a graph: matrix products with packed weights, attention, and what is between.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

namespace spec_cpu {

// The kernel that weights were packed for, or nullptr for a tensor as ggml knows it.
const Kernel * packed_for(const ggml_tensor * weights);
void mark_packed(ggml_tensor * weights, const Kernel * kernel);

class Runner {
  public:
    void set_threads(int threads) { threads_ = threads; }
    void run(ggml_cgraph * graph);

  private:
    struct Step {
        ggml_tensor * op;
        bool prepare;       // the activations are not ready yet
        bool wait;          // for other threads' results
        std::atomic<int64_t> next_chunk{0};

        Step(ggml_tensor * t, bool p, bool w) : op(t), prepare(p), wait(w) {}
        Step(Step && s) noexcept : op(s.op), prepare(s.prepare), wait(s.wait) {}
    };

    void plan(ggml_cgraph * graph);
    void run_thread(int thread);
    void run_rows(const ggml_tensor * op, int thread) const;
    void prepare(const ggml_tensor * op, int thread);
    void multiply(Step & step);
    void attend(Step & step, int thread);

    int threads_ = 1;
    std::vector<Step> steps_;
    std::vector<uint8_t> activations_;
    Attention attention_;
};

}  // namespace spec_cpu
