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

void rms_norm(const float * x, int64_t n, float epsilon, float * y) {
    constexpr int SUMS = 16;  // independent sums, so that the compiler may use vectors
    float sums[SUMS] = {};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) sums[j] += x[i + j] * x[i + j];
    double sum = 0;
    for (; i < n; i++) sum += double(x[i]) * x[i];
    for (const float s : sums) sum += s;
    const float scale = 1 / std::sqrt(float(sum / double(n)) + epsilon);
    for (i = 0; i < n; i++) y[i] = scale * x[i];
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

void compute_row(const ggml_tensor * op, int64_t row) {
    const int64_t n = op->ne[0];
    float * y = static_cast<float *>(op->data) + row * n;
    const float * x = static_cast<const float *>(op->src[0]->data) + row * n;
    switch (op->op) {
        case GGML_OP_RMS_NORM: {
            float epsilon;
            std::memcpy(&epsilon, op->op_params, sizeof epsilon);
            rms_norm(x, n, epsilon, y);
            break;
        }
        case GGML_OP_ADD: {
            const float * b = operand_row(op->src[1], row);
            for (int64_t i = 0; i < n; i++) y[i] = x[i] + b[i];
            break;
        }
        case GGML_OP_MUL: {
            const float * b = operand_row(op->src[1], row);
            for (int64_t i = 0; i < n; i++) y[i] = x[i] * b[i];
            break;
        }
        default: swiglu(x, operand_row(op->src[1], row), n, y);
    }
}

}  // namespace spec_cpu
