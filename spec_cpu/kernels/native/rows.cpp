#include "rows.h"

#include <cmath>
#include <cstring>

#include "simd.h"

namespace spec_cpu {

namespace {

Floats load_some(const float * p, int64_t n) {
    if (n >= LANES) return load_floats(p);
    float lanes[LANES] = {};
    std::memcpy(lanes, p, size_t(n) * sizeof(float));
    return load_floats(lanes);
}

void store_some(float * p, Floats x, int64_t n) {
    if (n >= LANES) return store(p, x);
    float lanes[LANES];
    store(lanes, x);
    std::memcpy(p, lanes, size_t(n) * sizeof(float));
}

// Strict on dimensions of size 1, too: whether an operation is taken must not depend on how many
// tokens there are, for ggml adds up in another order.
bool is_plain(const ggml_tensor * t) {
    if (!t || t->type != GGML_TYPE_F32 || t->nb[0] != sizeof(float)) return false;
    for (int i = 1; i < GGML_MAX_DIMS; i++)
        if (t->nb[i] != t->nb[i - 1] * size_t(t->ne[i - 1])) return false;
    return true;
}

// The second operand: of the same shape, or one row for all.
bool is_operand(const ggml_tensor * op) {
    const ggml_tensor * b = op->src[1];
    return is_plain(b) && b->ne[0] == op->ne[0] && (ggml_are_same_shape(b, op) || ggml_nrows(b) == 1);
}

const float * operand_row(const ggml_tensor * b, int64_t row) {
    return static_cast<const float *>(b->data) + (ggml_nrows(b) == 1 ? 0 : row * b->ne[0]);
}

// As ggml's CPU backend adds the squares up, to the bit: llama.cpp itself chooses which of the two
// backends computes a norm, by the number of tokens, and a row must not depend on its company. That
// order leaves a row waiting for its own sum, so N rows are computed side by side.
template <int N> void rms_norm(const float * x, int64_t n, float epsilon, float * y) {
    double sums[N] = {};
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < N; j++) {
            const float v = x[j * n + i];
            sums[j] += double(v * v);
        }
    for (int j = 0; j < N; j++) {
        const float scale = 1 / std::sqrt(float(sums[j] / double(n)) + epsilon);
        for (int64_t i = j * n; i < (j + 1) * n; i++) y[i] = scale * x[i];
    }
}

void rms_norms(const float * x, int64_t rows, int64_t n, float epsilon, float * y) {
    constexpr int TOGETHER = 8;
    int64_t row = 0;
    for (; row + TOGETHER <= rows; row += TOGETHER) rms_norm<TOGETHER>(x + row * n, n, epsilon, y + row * n);
    for (; row < rows; row++) rms_norm<1>(x + row * n, n, epsilon, y + row * n);
}

// silu(gate) * up, silu(x) = x / (1 + e^-x).
void swiglu(const float * gate, const float * up, int64_t n, float * y) {
    for (int64_t i = 0; i < n; i += LANES) {
        const Floats x = load_some(gate + i, n - i);
        const Floats e = exponential(mul(x, every_float(-1)));
        store_some(y + i, mul(divided(x, add(every_float(1), e)), load_some(up + i, n - i)), n - i);
    }
}

}  // namespace

bool is_row_op(const ggml_tensor * op) {
    if (!is_plain(op) || !is_plain(op->src[0])) return false;
    switch (op->op) {
        case GGML_OP_RMS_NORM: return true;
        case GGML_OP_ADD:
        case GGML_OP_MUL: return ggml_are_same_shape(op->src[0], op) && is_operand(op);
        case GGML_OP_GLU:
            return ggml_get_glu_op(op) == GGML_GLU_OP_SWIGLU && is_plain(op->src[1]) &&
                   ggml_are_same_shape(op->src[0], op) && ggml_are_same_shape(op->src[1], op);
        default: return false;
    }
}

void compute_rows(const ggml_tensor * op, int64_t first, int64_t last) {
    const int64_t n = op->ne[0];
    float * y = static_cast<float *>(op->data) + first * n;
    const float * x = static_cast<const float *>(op->src[0]->data) + first * n;
    if (op->op == GGML_OP_RMS_NORM) {
        float epsilon;
        std::memcpy(&epsilon, op->op_params, sizeof epsilon);
        return rms_norms(x, last - first, n, epsilon, y);
    }
    for (int64_t row = first; row < last; row++, x += n, y += n) {
        const float * b = operand_row(op->src[1], row);
        switch (op->op) {
            case GGML_OP_ADD:
                for (int64_t i = 0; i < n; i++) y[i] = x[i] + b[i];
                break;
            case GGML_OP_MUL:
                for (int64_t i = 0; i < n; i++) y[i] = x[i] * b[i];
                break;
            default: swiglu(x, b, n, y);
        }
    }
}

}  // namespace spec_cpu
