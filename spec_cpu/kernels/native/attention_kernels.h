// The arithmetic of attention.cpp: what queries make of a chunk of cells, in floats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "simd.h"

namespace spec_cpu {

constexpr int64_t CHUNK = 128;       // cells that a query sees, summed apart
constexpr int64_t CELLS = 16;        // whose masks are looked at together
constexpr int TOGETHER = 6;          // queries multiplied together
constexpr uint16_t MASKED = 0xfc00;  // -infinity

// KEYS that N queries are multiplied with together, and the vectors of a value (STRIP): as many sums as
// there are registers for, lest they wait for themselves.
template <int N> constexpr int KEYS = LANES == 16 ? (N <= 2 ? 8 : 4) : (N == 1 ? 8 : N <= 3 ? 4 : 2);
template <int N> constexpr int STRIP = LANES == 16 ? (N == 1 ? 8 : 4) : KEYS<N>;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
inline Ints to_ints(Floats a) { return _mm512_cvtps_epi32(a); }
inline Ints plus(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
#else
inline Ints to_ints(Floats a) { return _mm256_cvtps_epi32(a); }
inline Ints plus(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
#endif

// Bits of CELLS cells that a mask shows.
inline uint32_t shown(const uint16_t * mask) {
    const __m256i m = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(mask));
    const __m256i masked = _mm256_cmpeq_epi16(m, _mm256_set1_epi16(int16_t(MASKED)));
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(masked), _mm256_extracti128_si256(masked, 1));
    return uint32_t(_mm_movemask_epi8(bytes)) ^ 0xffff;
}

// The cell behind the next `count` that the mask shows, from `cell` on; `positions` if there are fewer.
inline int64_t behind(const uint16_t * mask, int64_t cell, int64_t positions, int64_t count) {
    while (cell < positions && count > 0) {
        const int64_t block = cell / CELLS * CELLS;
        uint32_t bits = shown(mask + block) >> (cell - block) << (cell - block);
        const int64_t in_block = __builtin_popcount(bits);
        if (in_block >= count) {
            for (; count > 1; count--) bits &= bits - 1;
            return block + __builtin_ctz(bits) + 1;
        }
        count -= in_block;
        cell = block + CELLS;
    }
    return cell;
}

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

// e^x for x up to 0; 0 where it cannot matter beside 1. Products with what is smaller may be denormal,
// and those take a processor a hundred times as long. NaN stays.
inline Floats weight(Floats x) {
    return larger(zero_floats(), add(exponential(x), every_float(-1e-28f)));
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

struct Token {
    const uint16_t * mask;
    int64_t begin = 0, end = 0;               // the cells of its chunk lie in here
    const uint16_t * mask_of_cells = nullptr; // its mask of the tile's cells, in their order
};

struct Query {
    const float * q;
    const Token * token;
    float * weights;  // of the tile's cells; their logits at first
    float * out;
};

// The logits of a block of cells, for N queries. WIDTH: a head's, where it is known beforehand, or 0.
template <int N, int WIDTH>
void score(const float * keys, int64_t any_width, float scale, const Query * queries, int64_t block) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    Floats partial[N][LANES];
    for (int p = 0; p < LANES; p += KEYS<N>) {
        const float * key = keys + p * width;
        Floats sums[N][KEYS<N>];
#pragma GCC unroll 6
        for (int i = 0; i < N; i++)
#pragma GCC unroll 8
            for (int r = 0; r < KEYS<N>; r++) sums[i][r] = zero_floats();
#pragma GCC unroll 8
        for (int64_t x = 0; x < width; x += LANES) {
            Floats of_keys[KEYS<N>];
#pragma GCC unroll 8
            for (int r = 0; r < KEYS<N>; r++) of_keys[r] = load_floats(key + r * width + x);
#pragma GCC unroll 6
            for (int i = 0; i < N; i++) {
                const Floats of_query = load_floats(queries[i].q + x);
#pragma GCC unroll 8
                for (int r = 0; r < KEYS<N>; r++) sums[i][r] = fma(of_keys[r], of_query, sums[i][r]);
            }
        }
#pragma GCC unroll 6
        for (int i = 0; i < N; i++)
#pragma GCC unroll 8
            for (int r = 0; r < KEYS<N>; r++) partial[i][p + r] = sums[i][r];
    }
    for (int i = 0; i < N; i++) {
        const Floats mask = load_f16(queries[i].token->mask_of_cells + block);
        store(queries[i].weights + block, fma(sums_of(partial[i]), every_float(scale), mask));
    }
}

// From logits to weights; 0 where the mask is -infinity. Where between them there are zeros must not
// change their sum: in integers it is exact.
inline void weigh(const Query & query, int64_t cells, const Partial & chunk) {
    constexpr float UNIT = float(1 << 23);  // CHUNK times as much fits into 32 bits
    const uint16_t * mask = query.token->mask_of_cells;
    Floats largest = every_float(-INFINITY);
    for (int64_t p = 0; p < cells; p += LANES) largest = larger(load_floats(query.weights + p), largest);
    float lanes[LANES];
    store(lanes, largest);
    *chunk.largest = *std::max_element(lanes, lanes + LANES);
    Floats sum = zero_floats();
    Ints exact = zero_ints();
    for (int64_t p = 0; p < cells; p += LANES) {
        const Floats e = weight(add(load_floats(query.weights + p), every_float(-*chunk.largest)));
        const Floats weights = zero_unless_above(e, load_f16(mask + p), every_float(-INFINITY));
        store(query.weights + p, weights);
        sum = add(sum, weights);
        exact = plus(exact, to_ints(mul(weights, every_float(UNIT))));
    }
    int32_t units[LANES];
    std::memcpy(units, &exact, sizeof units);
    int64_t all = 0;
    for (const int32_t unit : units) all += unit;
    *chunk.sum = sum_of(sum);  // 0 where nothing is seen; NaN where a weight is
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

template <int N>
void add_values(
    const float * values, int64_t width, int64_t count, const Query * queries, int64_t first_cell,
    const Partial * chunks) {
    float * sums[N];
    int64_t x = 0;
    const auto add = [&](auto strip, int64_t step) {
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
