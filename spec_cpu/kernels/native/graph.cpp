#include "graph.h"

#include <algorithm>

#include "ggml-backend.h"
#include "rows.h"
#include "threads.h"

namespace spec_cpu {

namespace {

constexpr int CHUNKS_PER_THREAD = 4;  // so that a thread that was held up does not hold up all

struct Range {
    int64_t first, last;

    Range(int64_t all, int part, int parts) : first(all * part / parts), last(all * (part + 1) / parts) {}
};

const float * activation_row(const ggml_tensor * x, int64_t row) {
    const int64_t i1 = row % x->ne[1], i2 = row / x->ne[1] % x->ne[2], i3 = row / x->ne[1] / x->ne[2];
    return reinterpret_cast<const float *>(
        static_cast<const char *>(x->data) + i1 * x->nb[1] + i2 * x->nb[2] + i3 * x->nb[3]);
}

}  // namespace

const Kernel * packed_for(const ggml_tensor * weights) { return static_cast<const Kernel *>(weights->extra); }

void mark_packed(ggml_tensor * weights, const Kernel * kernel) { weights->extra = const_cast<Kernel *>(kernel); }

// One thread's rows are its own from operation to operation, and so are the activations made from
// them: with a single row there is nothing to wait for. All other results are anybody's.
void Runner::plan(ggml_cgraph * graph) {
    steps_.clear();
    const ggml_tensor * ready = nullptr;  // whose activations are, and how
    bool ready_quantized = false;
    bool alone = true;                    // since the last wait one thread did all there was
    size_t bytes = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        ggml_tensor * op = ggml_graph_node(graph, i);
        if (op->op == GGML_OP_MUL_MAT) {
            const ggml_tensor * x = op->src[1];
            const bool quantized = packed_for(op->src[0])->quantized;
            const bool prepare = x != ready || quantized != ready_quantized;
            const bool same_thread = alone && ggml_nrows(x) == 1;
            steps_.emplace_back(op, prepare, prepare && !same_thread && !steps_.empty());
            bytes = std::max(bytes, activation_bytes(quantized, x->ne[0], ggml_nrows(x)));
            ready = x;
            ready_quantized = quantized;
            alone = false;
        } else if (op->op == GGML_OP_FLASH_ATTN_EXT) {
            attention_.reserve(op);
            steps_.emplace_back(op, false, !steps_.empty());
            ready = nullptr;
            alone = false;
        } else if (is_row_op(op)) {
            const bool single = ggml_nrows(op) == 1;
            steps_.emplace_back(op, false, !(alone && single) && !steps_.empty());
            ready = nullptr;
            alone = single;
        }
    }
    if (activations_.size() < bytes) activations_.resize(bytes);
}

void Runner::run(ggml_cgraph * graph) {
    plan(graph);
    if (steps_.empty()) return;
    in_threads(threads_, [this] { run_thread(omp_get_thread_num()); });
}

void Runner::run_thread(int thread) {
    for (Step & step : steps_) {
        if (step.wait) GOMP_barrier();
        switch (step.op->op) {
            case GGML_OP_MUL_MAT:
                if (step.prepare) {
                    prepare(step.op, thread);
                    GOMP_barrier();
                }
                multiply(step);
                break;
            case GGML_OP_FLASH_ATTN_EXT: attend(step, thread); break;
            default: run_rows(step.op, thread);
        }
    }
}

void Runner::run_rows(const ggml_tensor * op, int thread) const {
    const Range rows(ggml_nrows(op), thread, omp_get_num_threads());
    compute_rows(op, rows.first, rows.last);
}

void Runner::prepare(const ggml_tensor * op, int thread) {
    const ggml_tensor * x = op->src[1];
    const bool quantized = packed_for(op->src[0])->quantized;
    const int64_t n = ggml_nrows(x);
    const Range columns(n, thread, omp_get_num_threads());
    for (int64_t j = columns.first; j < columns.last; j++)
        prepare_column(quantized, activation_row(x, j), x->ne[0], j, n, activations_.data());
}

void Runner::multiply(Step & step) {
    const ggml_tensor * w = step.op->src[0];
    const Kernel & kernel = *packed_for(w);
    const int64_t k = w->ne[0], groups = w->ne[1] / lanes(), n = ggml_nrows(step.op);
    const int64_t size = std::max<int64_t>(1, groups / (CHUNKS_PER_THREAD * omp_get_num_threads()));
    const size_t group_bytes = kernel.group_bytes(k);
    float * y = static_cast<float *>(step.op->data);
    for (;;) {
        const int64_t first = size * step.next_chunk.fetch_add(1, std::memory_order_relaxed);
        if (first >= groups) return;
        kernel.multiply(
            static_cast<const uint8_t *>(w->data) + first * group_bytes, k, std::min(size, groups - first),
            activations_.data(), n, y + first * lanes(), size_t(step.op->ne[0]));
    }
}

void Runner::attend(Step & step, int thread) {
    thread_local AttentionScratch scratch;
    const int threads = omp_get_num_threads();
    if (attention_.look(step.op, thread, threads)) attention_.share_out(step.op, threads);
    GOMP_barrier();
    for (;;) {
        const int64_t task = step.next_chunk.fetch_add(1, std::memory_order_relaxed);
        if (task >= attention_.tasks()) return;
        attention_.run(step.op, task, scratch);
    }
}

}  // namespace spec_cpu
