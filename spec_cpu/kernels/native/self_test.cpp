#include "self_test.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace spec_cpu {

namespace {

constexpr int64_t K = 512, N = 19;  // more columns than any kernel multiplies together
constexpr double TOLERANCE = 2e-2;  // of the typical result: 8 bits of an activation leave 0.3 %

using Matrix = std::vector<float>;

std::vector<uint8_t> quantized(const Kernel & kernel, const Matrix & weights, int64_t rows) {
    std::vector<uint8_t> out(ggml_row_size(kernel.type, K) * size_t(rows));
    ggml_quantize_chunk(kernel.type, weights.data(), out.data(), 0, rows, K, nullptr);
    return out;
}

Matrix dequantized(const Kernel & kernel, const std::vector<uint8_t> & weights, int64_t rows) {
    Matrix out(size_t(rows * K));
    ggml_get_type_traits(kernel.type)->to_float(weights.data(), out.data(), rows * K);
    return out;
}

Matrix product(const Kernel & kernel, const std::vector<uint8_t> & packed, int64_t rows, const float * x, int64_t n) {
    std::vector<uint8_t> activations(activation_bytes(kernel.quantized, K, n));
    for (int64_t j = 0; j < n; j++) prepare_column(kernel.quantized, x + j * K, K, j, n, activations.data());
    Matrix y(size_t(n * rows));
    kernel.multiply(packed.data(), K, rows / lanes(), activations.data(), n, y.data(), size_t(rows));
    return y;
}

// The largest difference, in standard deviations of a result.
double error(const Matrix & weights, const Matrix & x, const Matrix & y, int64_t rows) {
    double worst = 0, squares = 0;
    for (int64_t j = 0; j < N; j++)
        for (int64_t r = 0; r < rows; r++) {
            double exact = 0;
            for (int64_t i = 0; i < K; i++) exact += double(weights[size_t(r * K + i)]) * x[size_t(j * K + i)];
            worst = std::fmax(worst, std::fabs(exact - y[size_t(j * rows + r)]));
            squares += exact * exact;
        }
    return worst / std::sqrt(squares / double(N * rows));
}

}  // namespace

bool self_test(const Kernel & kernel, char * message, size_t size) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const int64_t rows = 2 * lanes();
    Matrix weights(size_t(rows * K)), x(size_t(N * K));
    for (float & w : weights) w = normal(random);
    for (float & v : x) v = normal(random);
    const std::vector<uint8_t> source = quantized(kernel, weights, rows);
    std::vector<uint8_t> packed(kernel.group_bytes(K) * 2 + SLACK);
    kernel.pack(source.data(), K, rows, packed.data());
    const Matrix y = product(kernel, packed, rows, x.data(), N);
    const double worst = error(dequantized(kernel, source, rows), x, y, rows);
    if (!(worst < TOLERANCE)) {
        std::snprintf(message, size, "off by %.3g", worst);
        return false;
    }
    for (int64_t j = 0; j < N; j++) {
        const Matrix alone = product(kernel, packed, rows, x.data() + j * K, 1);
        if (std::memcmp(alone.data(), y.data() + j * rows, size_t(rows) * sizeof(float)) != 0) {
            std::snprintf(message, size, "a column depends on the others");
            return false;
        }
    }
    return true;
}

}  // namespace spec_cpu
