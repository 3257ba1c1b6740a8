// The arithmetic of attention.cpp: what queries make of a chunk of cells, in floats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cohorts.h"
#include "simd.h"

namespace spec_cpu {

constexpr int TOGETHER = 6;  // queries multiplied together
constexpr float LOG2_E = 1.44269504f;

// VECTORS of cells that N queries are multiplied with together: as many sums as there are registers for,
// lest they wait for themselves. And vectors of a value.
template <int N> constexpr int VECTORS = N <= 3 ? 4 : 2;
template <int N> constexpr int STRIP = LANES == 16 ? (N == 1 ? 8 : 4) : (N == 1 ? 8 : N <= 3 ? 4 : 2);
constexpr int64_t BLOCK = 4 * LANES;  // cells whose keys are transposed together

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
inline Ints to_ints(Floats a) { return _mm512_cvtps_epi32(a); }
inline Ints plus(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints bits_of(Floats a) { return _mm512_castps_si512(a); }
inline Floats of_bits(Ints a) { return _mm512_castsi512_ps(a); }
inline Ints to_exponent(Ints a) { return _mm512_slli_epi32(a, 23); }
inline Floats zero_if_below(Floats x, Floats a, Floats b) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}
#else
inline Ints to_ints(Floats a) { return _mm256_cvtps_epi32(a); }
inline Ints plus(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints bits_of(Floats a) { return _mm256_castps_si256(a); }
inline Floats of_bits(Ints a) { return _mm256_castsi256_ps(a); }
inline Ints to_exponent(Ints a) { return _mm256_slli_epi32(a, 23); }
inline Floats zero_if_below(Floats x, Floats a, Floats b) {
    return _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}
#endif

inline int64_t parts(int64_t all, int64_t size) { return (all + size - 1) / size; }

// What comes of a query's chunks: the values, summed with weights e^(logit - largest), and the sum of
// the weights, which is 0 where nothing was seen.
struct Partial {
    float *values = nullptr, *sum = nullptr, *largest = nullptr;

    Partial() = default;
    Partial(float * memory, int64_t value_width)
        : values(memory), sum(memory + value_width), largest(memory + value_width + 1) {}

    static int64_t floats(int64_t value_width) { return value_width + LANES; }  // stays aligned
};

// 2^x for x up to 0, to 3 units in the last place; 0 where it cannot matter beside 1. Products with
// what is smaller may be denormal, and those take a processor a hundred times as long. NaN stays.
inline Floats weight(Floats x) {
    // Beside it there is room for whole numbers alone: they are what is left in the lowest bits.
    const Floats whole = every_float(0x1.8p23f);
    const Floats n = add(x, whole);
    const Floats r = minus(x, minus(n, whole));
    Floats p = every_float(0x1.5bba14p-10f);  // 2^r on [-1/2, 1/2]; fitted to the least relative error
    for (const float c : {0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1.f}) p = fma(p, r, every_float(c));
    return zero_if_below(of_bits(plus(bits_of(p), to_exponent(bits_of(n)))), x, every_float(-93));
}

inline void clear(const Partial & p, int64_t value_width) {
    std::fill_n(p.values, value_width, 0.f);
    *p.sum = 0;
    *p.largest = -INFINITY;
}

// Adds the chunk that comes next to those before it.
inline void fold(const Partial & all, const Partial & next, int64_t value_width) {
    if (*next.sum == 0) return;
    const float largest = std::max(*all.largest, *next.largest);
    const Floats before = weight(every_float(*all.largest - largest));
    const Floats after = weight(every_float(*next.largest - largest));
    for (int64_t i = 0; i < value_width; i += LANES)
        store(all.values + i, fma(load_floats(next.values + i), after, mul(load_floats(all.values + i), before)));
    float lanes[2][LANES];
    store(lanes[0], before);
    store(lanes[1], after);
    *all.sum = *all.sum * lanes[0][0] + *next.sum * lanes[1][0];
    *all.largest = largest;
}

inline void finish(const Partial & all, int64_t value_width, float * out) {
    const Floats scale = every_float(*all.sum == 0 ? 0 : 1 / *all.sum);
    for (int64_t i = 0; i < value_width; i += LANES) store(out + i, mul(load_floats(all.values + i), scale));
}

inline Floats load(const float * p) { return load_floats(p); }
inline Floats load(const uint16_t * p) { return load_f16(p); }

struct Token {
    const uint16_t * mask;                     // of all cells
    bool plain;                                // it adds nothing to the logits that it shows
    const int32_t * ends;                      // behind each of its chunks, in the tile's list of cells
    int64_t chunks;
    int64_t seen;                              // cells that it sees
    const uint16_t * mask_of_cells = nullptr;  // of those at hand; none: all are shown, as they are
    bool sees = false;                         // any of the cells at hand
};

struct Query {
    const float * q;
    const Token * token;
    float * weights;  // of the cells at hand; their logits at first
    float * out;
};

inline void convert(const uint16_t * halves, int64_t count, float * out) {
    for (int64_t x = 0; x < count; x += LANES) store(out + x, load_f16(halves + x));
}

// Keys of 8 cells, `width` halves each, to `out`: their first halves, their second ones, ... A row of
// `out` has LANES cells.
inline void transpose(const uint16_t * const * keys, int64_t width, uint16_t * out) {
    const auto store_both = [](uint16_t * low, uint16_t * high, __m256i x) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(low), _mm256_castsi256_si128(x));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(high), _mm256_extracti128_si256(x, 1));
    };
    for (int64_t x = 0; x < width; x += 16) {
        __m256i a[8], b[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(keys[i] + x));
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
            b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
            b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int first = i / 2 * 4 + i % 2;
            a[2 * i] = _mm256_unpacklo_epi32(b[first], b[first + 2]);
            a[2 * i + 1] = _mm256_unpackhi_epi32(b[first], b[first + 2]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            uint16_t * row = out + (x + 2 * i) * LANES;
            store_both(row, row + 8 * LANES, _mm256_unpacklo_epi64(a[i], a[i + 4]));
            store_both(row + LANES, row + 9 * LANES, _mm256_unpackhi_epi64(a[i], a[i + 4]));
        }
    }
}

// The logits, in powers of 2, of V vectors of cells, for N queries. A sum goes from the first product to
// the last.
template <int N, int V, class Number>
void score(const Number * keys, int64_t width, float scale, const Query * queries, int64_t first_cell) {
    Floats sums[N][V];
#pragma GCC unroll 6
    for (int i = 0; i < N; i++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) sums[i][v] = zero_floats();
    const float * q[N];
#pragma GCC unroll 6
    for (int i = 0; i < N; i++) q[i] = queries[i].q;
#pragma GCC unroll 2
    for (int64_t x = 0; x < width; x++) {
        Floats of_keys[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) of_keys[v] = load(keys + (v * width + x) * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < N; i++) {
            const Floats of_query = every_float(q[i][x]);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) sums[i][v] = fma(of_keys[v], of_query, sums[i][v]);
        }
    }
    for (int i = 0; i < N; i++) {
        const uint16_t * mask = queries[i].token->mask_of_cells;
        float * logits = queries[i].weights + first_cell;
        for (int v = 0; v < V; v++) {
            Floats logit = mul(sums[i][v], every_float(scale * LOG2_E));
            if (mask) {
                const Floats masks = load_f16(mask + first_cell + v * LANES);
                logit = fma(masks, every_float(LOG2_E), zero_unless_above(logit, masks, every_float(-INFINITY)));
            }
            store(logits + v * LANES, logit);
        }
    }
}

// From logits to weights. Where between them there are zeros must not change their sum: in integers it
// is exact.
inline void weigh(float * weights, int64_t cells, const Partial & chunk) {
    constexpr float UNIT = float(1 << 23);  // CHUNK times as much fits into 32 bits
    Floats largest = every_float(-INFINITY);
    for (int64_t p = 0; p < cells; p += LANES) largest = larger(load_floats(weights + p), largest);
    float lanes[LANES];
    store(lanes, largest);
    *chunk.largest = *std::max_element(lanes, lanes + LANES);
    Floats sum = zero_floats();
    Ints exact = zero_ints();
    for (int64_t p = 0; p < cells; p += LANES) {
        const Floats e = weight(minus(load_floats(weights + p), every_float(*chunk.largest)));
        store(weights + p, e);
        sum = add(sum, e);
        exact = plus(exact, to_ints(mul(e, every_float(UNIT))));
    }
    int32_t units[LANES];
    std::memcpy(units, &exact, sizeof units);
    int64_t all = 0;
    for (const int32_t unit : units) all += unit;
    *chunk.sum = sum_of(sum);  // NaN where a weight is
    if (*chunk.sum > 0) *chunk.sum = float(double(all) / double(UNIT));
}

// Adds VECTORS vectors of `count` values, weighted, for N queries.
template <int N, int VECTORS>
void add_strip(
    const float * values, int64_t width, int64_t count, const Query * queries, int64_t first_cell, float * const * sums) {
    Floats acc[N][VECTORS];
    const float * weights[N];
#pragma GCC unroll 6
    for (int i = 0; i < N; i++) {
        weights[i] = queries[i].weights + first_cell;
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) acc[i][v] = load_floats(sums[i] + v * LANES);
    }
    for (int64_t p = 0; p < count; p++, values += width) {
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            const Floats x = load_floats(values + v * LANES);
#pragma GCC unroll 6
            for (int i = 0; i < N; i++) acc[i][v] = fma(x, every_float(weights[i][p]), acc[i][v]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < N; i++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) store(sums[i] + v * LANES, acc[i][v]);
}

// Calls `meanwhile` now and then.
template <int N, class Meanwhile>
void add_values(
    const float * values, int64_t width, int64_t count, const Query * queries, int64_t first_cell,
    const Partial * chunks, const Meanwhile & meanwhile) {
    float * sums[N];
    int64_t x = 0;
    const auto add = [&](auto strip, int64_t step) {
        meanwhile();
        for (int i = 0; i < N; i++) sums[i] = chunks[i].values + x;
        strip(values + x, width, count, queries, first_cell, sums);
        x += step;
    };
    while (x + STRIP<N> * LANES <= width) add(add_strip<N, STRIP<N>>, STRIP<N> * LANES);
    while (x < width) add(add_strip<N, 1>, LANES);
}

// Calls f(std::integral_constant<int, N>, first) for groups of N queries, much alike in size.
template <class F> void by_groups(int64_t n, const F & f) {
    static_assert(TOGETHER == 6);
    int64_t i = 0;
    for (int64_t groups = parts(n, TOGETHER); groups > 0; groups--) {
        const int64_t size = parts(n - i, groups);
        switch (size) {
            case 1: f(std::integral_constant<int, 1>(), i); break;
            case 2: f(std::integral_constant<int, 2>(), i); break;
            case 3: f(std::integral_constant<int, 3>(), i); break;
            case 4: f(std::integral_constant<int, 4>(), i); break;
            case 5: f(std::integral_constant<int, 5>(), i); break;
            default: f(std::integral_constant<int, 6>(), i);
        }
        i += size;
    }
}

}  // namespace spec_cpu
