#include "rows.h"

#include <cmath>
#include <cstring>

namespace spec_cpu {

namespace {

bool is_plain(const ggml_tensor * t) { return t && t->type == GGML_TYPE_F32 && ggml_is_contiguous(t); }

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

// e^x to 2 units in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2].
inline float exponential(float x) {
    x = x < -87 ? -87 : x > 88 ? 88 : x;
    const float n = std::nearbyint(x * 1.44269504f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    const int32_t bits = (int32_t(n) + 127) * (1 << 23);
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
}

void swiglu(const float * gate, const float * up, int64_t n, float * y) {
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1 + exponential(-gate[i])) * up[i];
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
