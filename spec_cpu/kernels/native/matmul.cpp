#include "matmul.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfloat>
#include <utility>

#include "formats.h"
#include "threads.h"

namespace spec_cpu {

namespace {

constexpr int TILE = 16;  // columns that share the unpacking of the weights

// Columns lie in tiles of up to TILE; in a tile the columns of one block are neighbours.
struct Tile {
    int64_t first;
    int64_t width;

    Tile(int64_t j, int64_t n) : first(j / TILE * TILE), width(std::min<int64_t>(TILE, n - first)) {}
};

// ---- products ----------------------------------------------------------------------------------

void prefetch(const uint8_t * p, size_t bytes) {
    constexpr size_t AHEAD = 3072, LINE = 64;  // no whole page: its lines share a set of the cache
    for (size_t i = 0; i < bytes; i += LINE)
        _mm_prefetch(reinterpret_cast<const char *>(p + AHEAD + i), _MM_HINT_T0);
}

// Adds to `sums` what one block of a group gives with N columns.
template <class F, int N>
ALWAYS_INLINE void add_block(const Ints * weights, const typename F::Scales::Block & scales, const QuantizedBlock * a, Floats * sums) {
    Floats products_of[N];
    products<F::BITS, F::Scales::PARTS>(weights, a, scales.multiples, products_of);
#pragma GCC unroll 16
    for (int j = 0; j < N; j++) sums[j] = scales.add(products_of[j], a[j], sums[j]);
}

template <class F, int N>
void multiply_quantized(const uint8_t * w, int64_t k, const QuantizedBlock * a, float * y, size_t stride) {
    using Scales = typename F::Scales;
    using Quants = typename F::Quants;
    Floats acc[N];
#pragma GCC unroll 16
    for (int j = 0; j < N; j++) acc[j] = zero_floats();
    for (int64_t column = 0; column < k; column += F::COLUMNS, w += F::BYTES) {
        const Scales scales(w);
        for (int b = 0; b < Scales::BLOCKS; b++, a += N) {
            const uint8_t * quants = w + Scales::BYTES + b * Quants::BYTES;
            prefetch(quants, Quants::BYTES + Scales::BYTES / Scales::BLOCKS);
            Ints weights[QUADS];
            Quants::load(quants, weights);
            const auto block = scales.block(b);
            constexpr int AT_ONCE = std::min(N, COLUMNS_TOGETHER), LEFT = N % AT_ONCE;
#pragma GCC unroll 16
            for (int j = 0; j + AT_ONCE <= N; j += AT_ONCE) add_block<F, AT_ONCE>(weights, block, a + j, acc + j);
            if constexpr (LEFT > 0) add_block<F, LEFT>(weights, block, a + N - LEFT, acc + N - LEFT);
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < N; j++) store(y + j * stride, acc[j]);
}

// G groups at once: one broadcast serves them all, and few columns do not wait for each other's sums.
template <class F, int N, int G>
void multiply_floats(const uint16_t * w, int64_t k, const float * a, float * y, size_t stride) {
    Floats acc[N][G];
#pragma GCC unroll 16
    for (int j = 0; j < N; j++)
#pragma GCC unroll 2
        for (int g = 0; g < G; g++) acc[j][g] = zero_floats();
    for (int64_t column = 0; column < k; column++, a += N) {
        Floats weights[G];
#pragma GCC unroll 2
        for (int g = 0; g < G; g++) {
            const uint16_t * from = w + (g * k + column) * LANES;
            if (column % 2 == 0) prefetch(reinterpret_cast<const uint8_t *>(from), 4 * LANES);
            weights[g] = F::load(from);
        }
#pragma GCC unroll 16
        for (int j = 0; j < N; j++) {
            Floats x = every_float(a[j]);
            if constexpr (G > 1) x = held(x);  // else the compiler broadcasts it anew for each
#pragma GCC unroll 2
            for (int g = 0; g < G; g++) acc[j][g] = fma(weights[g], x, acc[j][g]);
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < N; j++)
#pragma GCC unroll 2
        for (int g = 0; g < G; g++) store(y + j * stride + g * LANES, acc[j][g]);
}

template <class F> constexpr bool is_float = false;
template <> constexpr bool is_float<F16> = true;
template <> constexpr bool is_float<BF16> = true;

template <class F> size_t group_bytes(int64_t k) {
    if constexpr (is_float<F>) return size_t(k) * LANES * sizeof(uint16_t);
    else return size_t(k / F::COLUMNS) * F::BYTES;
}

// Groups multiplied together. Floats leave registers free where there are 32 and columns are few.
template <class F, int N> constexpr int TOGETHER = is_float<F> && LANES == 16 && N <= 8 ? 2 : 1;

template <class F, int N, int G>
void multiply_together(const uint8_t * w, int64_t k, const uint8_t * a, float * y, size_t stride) {
    if constexpr (is_float<F>)
        multiply_floats<F, N, G>(
            reinterpret_cast<const uint16_t *>(w), k, reinterpret_cast<const float *>(a), y, stride);
    else
        multiply_quantized<F, N>(w, k, reinterpret_cast<const QuantizedBlock *>(a), y, stride);
}

template <class F, int N>
void multiply_tile(const uint8_t * w, int64_t k, int64_t groups, const uint8_t * a, float * y, size_t stride) {
    constexpr int G = TOGETHER<F, N>;
    const size_t bytes = group_bytes<F>(k);
    int64_t g = 0;
    for (; g + G <= groups; g += G)
        multiply_together<F, N, G>(w + g * bytes, k, a, y + g * LANES, stride);
    for (; g < groups; g++) multiply_together<F, N, 1>(w + g * bytes, k, a, y + g * LANES, stride);
}

using MultiplyTile = void (*)(const uint8_t *, int64_t, int64_t, const uint8_t *, float *, size_t);

template <class F, int... WIDTHS>
constexpr std::array<MultiplyTile, TILE> by_width(std::integer_sequence<int, WIDTHS...>) {
    return {multiply_tile<F, WIDTHS + 1>...};
}

// A few groups stay in the cache while all columns pass by.
template <class F>
void multiply(
    const uint8_t * packed, int64_t k, int64_t groups, const uint8_t * activations, int64_t n, float * y,
    size_t stride) {
    static constexpr auto TILES = by_width<F>(std::make_integer_sequence<int, TILE>());
    constexpr int64_t FEW = 2;
    const size_t column_bytes = activation_bytes(!is_float<F>, k, 1);
    for (int64_t g = 0; g < groups; g += FEW)
        for (int64_t j = 0; j < n; j += TILE)
            TILES[Tile(j, n).width - 1](
                packed + g * group_bytes<F>(k), k, std::min(FEW, groups - g), activations + j * column_bytes,
                y + g * LANES + j * stride, stride);
}

// ---- packing -----------------------------------------------------------------------------------

template <class F> void pack_group(const uint8_t * source, int64_t k, uint8_t * packed) {
    const int64_t supers = k / F::COLUMNS;
    for (int64_t i = 0; i < supers; i++)
        for (int lane = 0; lane < LANES; lane++) {
            const uint8_t * block = source + (lane * supers + i) * F::SOURCE_BYTES;
            uint8_t * header = packed + i * F::BYTES;
            uint8_t quants[F::COLUMNS];
            F::quants(block, quants);
            F::scales(block, lane, header);
            for (int b = 0; b < F::Scales::BLOCKS; b++)
                F::Quants::store_lane(
                    header + F::Scales::BYTES + b * F::Quants::BYTES, lane, quants + b * BLOCK);
        }
}

void pack_float_group(const uint16_t * source, int64_t k, uint16_t * packed) {
    for (int64_t i = 0; i < k; i++)
        for (int lane = 0; lane < LANES; lane++) packed[i * LANES + lane] = source[lane * k + i];
}

template <class F> void pack(const void * source, int64_t k, int64_t rows, void * packed) {
    in_threads(0, [=] {
        for (int64_t g = omp_get_thread_num(); g < rows / LANES; g += omp_get_num_threads()) {
            uint8_t * to = static_cast<uint8_t *>(packed) + g * group_bytes<F>(k);
            if constexpr (is_float<F>)
                pack_float_group(
                    static_cast<const uint16_t *>(source) + g * LANES * k, k, reinterpret_cast<uint16_t *>(to));
            else
                pack_group<F>(
                    static_cast<const uint8_t *>(source) + g * LANES * (k / F::COLUMNS) * F::SOURCE_BYTES, k, to);
        }
    });
}

template <class F> constexpr Kernel kernel(ggml_type type) {
    if constexpr (is_float<F>) return {type, 1, false, group_bytes<F>, pack<F>, multiply<F>};
    else return {type, F::COLUMNS, true, group_bytes<F>, pack<F>, multiply<F>};
}

constexpr Kernel KERNELS[] = {
    kernel<Q4_0>(GGML_TYPE_Q4_0), kernel<Q4_1>(GGML_TYPE_Q4_1), kernel<Q5_0>(GGML_TYPE_Q5_0),
    kernel<Q5_1>(GGML_TYPE_Q5_1), kernel<Q8_0>(GGML_TYPE_Q8_0), kernel<Q4_K>(GGML_TYPE_Q4_K),
    kernel<Q5_K>(GGML_TYPE_Q5_K), kernel<Q6_K>(GGML_TYPE_Q6_K), kernel<F16>(GGML_TYPE_F16),
    kernel<BF16>(GGML_TYPE_BF16), {GGML_TYPE_COUNT, 0, false, nullptr, nullptr, nullptr},
};

// ---- activations -------------------------------------------------------------------------------

// The largest magnitude; NaN if there is one: as integers, magnitudes of floats order likewise.
float largest(const __m256 (&x)[4]) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    for (const __m256 v : x) m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v), magnitude));
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(s));
}

// Of the first and of the last two of every four, in each of two vectors.
__m128i sums_of_pairs(__m256i a, __m256i b) {
    const __m256i pairs = _mm256_hadd_epi32(a, b);
    return _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
}

int32_t sum_lanes(__m128i x) {
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

void quantize(const float * x, QuantizedBlock & out) {
    __m256 v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
    float d = largest(v) / 127;
    if (d < FLT_MIN) d = 0;  // its inverse could be infinite
    const __m256 inverse = _mm256_set1_ps(d == 0 ? 0 : 1 / d);
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    out.d = d;
    const __m128i pairs = sums_of_pairs(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    out.start[0] = start_of(_mm_extract_epi32(pairs, 0), _mm_extract_epi32(pairs, 1));
    out.start[1] = start_of(_mm_extract_epi32(pairs, 2), _mm_extract_epi32(pairs, 3));
    out.sum = d * float(sum_lanes(pairs));
    out.minus_8 = -8 * out.sum;
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out.q), _mm256_permutevar8x32_epi32(bytes, order));
}

std::atomic<bool> declined[GGML_TYPE_COUNT];

}  // namespace

const Kernel * all_kernels() { return KERNELS; }

const Kernel * find_kernel(ggml_type type, int64_t k, int64_t rows) {
    for (const Kernel * kernel = KERNELS; kernel->type != GGML_TYPE_COUNT; kernel++)
        if (kernel->type == type)
            return k % kernel->columns == 0 && rows % LANES == 0 && !declined[type] ? kernel : nullptr;
    return nullptr;
}

void decline(ggml_type type) { declined[type] = true; }

int lanes() { return LANES; }
const char * isa() { return ISA; }

size_t activation_bytes(bool quantized, int64_t k, int64_t n) {
    return size_t(n) * (quantized ? k / BLOCK * sizeof(QuantizedBlock) : k * sizeof(float));
}

void prepare_column(bool quantized, const float * x, int64_t k, int64_t j, int64_t n, uint8_t * activations) {
    const Tile tile(j, n);
    uint8_t * start = activations + tile.first * activation_bytes(quantized, k, 1);
    if (quantized) {
        QuantizedBlock * out = reinterpret_cast<QuantizedBlock *>(start) + (j - tile.first);
        for (int64_t i = 0; i < k; i += BLOCK, out += tile.width) quantize(x + i, *out);
    } else {
        float * out = reinterpret_cast<float *>(start) + (j - tile.first);
        for (int64_t i = 0; i < k; i++, out += tile.width) *out = x[i];
    }
}

}  // namespace spec_cpu
