// Products outside of a graph: for what a draft head computes beside llama.cpp's passes.
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "matmul.h"

namespace {

using namespace spec_cpu;

struct Free {
    void operator()(void * memory) const { std::free(memory); }
};

struct Matrix {
    const Kernel * kernel;
    int64_t k, rows;
    std::unique_ptr<uint8_t, Free> packed;
};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// A matrix of `rows` rows of k weights, kept in 8 bits; nullptr where no kernel has this size, or
// there is no memory.
EXPORTED void * spec_cpu_matrix(const float * weights, int64_t k, int64_t rows) try {
    const Kernel * kernel = find_kernel(GGML_TYPE_Q8_0, k, rows);
    if (!kernel) return nullptr;
    const size_t bytes = kernel->group_bytes(k) * size_t(rows / lanes()) + SLACK;
    void * memory = nullptr;
    if (posix_memalign(&memory, ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)) return nullptr;
    std::unique_ptr<uint8_t, Free> packed(static_cast<uint8_t *>(memory));
    std::vector<uint8_t> quantized(ggml_row_size(GGML_TYPE_Q8_0, k) * size_t(rows));
    ggml_quantize_chunk(GGML_TYPE_Q8_0, weights, quantized.data(), 0, rows, k, nullptr);
    kernel->pack(quantized.data(), k, rows, packed.get());
    return new Matrix{kernel, k, rows, std::move(packed)};
} catch (const std::bad_alloc &) {
    return nullptr;
}

EXPORTED void spec_cpu_matrix_free(void * matrix) { delete static_cast<Matrix *>(matrix); }

// y[j * rows + row] for n columns x of k each, by the calling thread alone.
EXPORTED void spec_cpu_matrix_multiply(const void * matrix, const float * x, int64_t n, float * y) {
    const Matrix & m = *static_cast<const Matrix *>(matrix);
    std::vector<uint8_t> activations(activation_bytes(m.kernel->quantized, m.k, n) + SLACK);
    for (int64_t j = 0; j < n; j++)
        prepare_column(m.kernel->quantized, x + j * m.k, m.k, j, n, activations.data());
    m.kernel->multiply(m.packed.get(), m.k, m.rows / lanes(), activations.data(), n, y, size_t(m.rows));
}
