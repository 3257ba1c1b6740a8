// Products of a block of quantized weights with activations of 8 bits, as each set of instructions
// does them best. All that differs between sets, beside the vectors of simd.h, stands here.
#pragma once

#include "simd.h"

namespace spec_cpu {

constexpr int BLOCK = 32;           // columns that share the scale of the activations
constexpr int QUADS = BLOCK / 4;    // four neighbouring columns of a row fill one lane

// 32 activations of a column, in [-127, 127] times d.
struct QuantizedBlock {
    int8_t q[BLOCK];
    float d;
    float sum;         // of the activations
    float minus_8;     // -8 times it
    int32_t start[2];  // of sums over each half, to have weights of 6 bits count from 32: start_of
};

// `products<BITS, PARTS>` multiplies one block of weights, QUADS vectors below 2^BITS, with the blocks
// `a` of N columns: each lane's sum, exact before it becomes a float. If PARTS is 2, each half is
// multiplied with its entry of `multiples` and, of 6 bits, counts from 32.
//
// COLUMNS_TOGETHER is how many columns leave registers for all of that. Where SIGNED_BYTES, weights of
// 8 bits are signed.

#if (defined(__AVX512VNNI__) && defined(__AVX512BW__)) || (defined(__AVXVNNI__) && !defined(__AVX512BW__))

constexpr int COLUMNS_TOGETHER = 1;
constexpr bool SIGNED_BYTES = false;

#if defined(__AVX512BW__)
inline Ints add_products(Ints sum, Ints w, Ints a) { return _mm512_dpbusd_epi32(sum, w, a); }
constexpr const char * ISA = "AVX-512 VNNI";
#else
inline Ints add_products(Ints sum, Ints w, Ints a) { return _mm256_dpbusd_avx_epi32(sum, w, a); }
constexpr const char * ISA = "AVX-VNNI";
#endif

// From the sums of a half: over the first and over the last two activations of each quad.
inline int32_t start_of(uint32_t first, uint32_t last) { return int32_t(-32 * (first + last)); }

using Multiples = Floats;
inline Multiples load_multiples(const int8_t * p) { return load_i8(p); }

template <int BITS, int PARTS, int N>
ALWAYS_INLINE void products(const Ints * weights, const QuantizedBlock * a, const Multiples * multiples, Floats (&out)[N]) {
    constexpr int PART = QUADS / PARTS;
#pragma GCC unroll 16
    for (int j = 0; j < N; j++) {
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++) {
            Ints sum = BITS == 6 ? every_int(a[j].start[part]) : zero_ints();
#pragma GCC unroll 8
            for (int g = part * PART; g < (part + 1) * PART; g++)
                sum = add_products(sum, weights[g], every_quad(a[j].q + 4 * g));
            if constexpr (PARTS == 1) out[j] = to_floats(sum);
            else out[j] = part ? fma(to_floats(sum), multiples[part], out[j]) : mul(to_floats(sum), multiples[part]);
        }
    }
}

#else

constexpr int COLUMNS_TOGETHER = 4;
constexpr bool SIGNED_BYTES = true;

#if defined(__AVX512BW__)
inline Ints pair_products(Ints w, Ints a) { return _mm512_maddubs_epi16(w, a); }
inline Ints add_16(Ints a, Ints b) { return _mm512_add_epi16(a, b); }
inline Ints add_32(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints sum_pairs(Ints a, Ints factors) { return _mm512_madd_epi16(a, factors); }
inline Ints every_16(int16_t x) { return _mm512_set1_epi16(x); }
inline Ints magnitude(Ints a) { return _mm512_abs_epi8(a); }
inline Ints with_sign_of(Ints a, Ints w) {
    return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
}
constexpr const char * ISA = "AVX-512";
#else
inline Ints pair_products(Ints w, Ints a) { return _mm256_maddubs_epi16(w, a); }
inline Ints add_16(Ints a, Ints b) { return _mm256_add_epi16(a, b); }
inline Ints add_32(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints sum_pairs(Ints a, Ints factors) { return _mm256_madd_epi16(a, factors); }
inline Ints every_16(int16_t x) { return _mm256_set1_epi16(x); }
inline Ints magnitude(Ints a) { return _mm256_abs_epi8(a); }
inline Ints with_sign_of(Ints a, Ints w) { return _mm256_sign_epi8(a, w); }
constexpr const char * ISA = "AVX2";
#endif

// From the sums of a half: over the first and over the last two activations of each quad.
inline int32_t start_of(uint32_t first, uint32_t last) {
    return int32_t((-32 * first & 0xffff) | -32 * last << 16);
}

using Multiples = Ints;  // both 16 bits of a lane hold the multiple
#if defined(__AVX512BW__)
inline Multiples load_multiples(const int8_t * p) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    const __m256i pairs = _mm256_set_m128i(_mm_unpackhi_epi8(x, x), _mm_unpacklo_epi8(x, x));
    return _mm512_cvtepi8_epi16(pairs);
}
#else
inline Multiples load_multiples(const int8_t * p) {
    const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, x));
}
#endif

template <int BITS> inline Ints quad_products(Ints w, Ints a) {
    return BITS == 8 ? pair_products(magnitude(w), with_sign_of(a, w)) : pair_products(w, a);
}

// A 16-bit number holds the sum of two products of 8 bits (128 * 127 * 2), eight of 5 or, counted from
// 32, of 6 bits, and sixteen of 4. It may overflow on the way to such a sum.
template <int BITS> constexpr int RUN = BITS == 8 ? 1 : BITS == 4 ? 8 : 4;  // quads

// `held` keeps the order of the text: else the compiler adds up in the shape of a tree, for which there
// are not enough registers.
template <int BITS, int PARTS, int N>
ALWAYS_INLINE void products(const Ints * weights, const QuantizedBlock * a, const Multiples * multiples, Floats (&out)[N]) {
    Ints total[N];
#pragma GCC unroll 8
    for (int first = 0; first < QUADS; first += RUN<BITS>) {
        const Ints factors = PARTS == 1 ? every_16(1) : multiples[first * PARTS / QUADS];
        Ints sum[N];
#pragma GCC unroll 8
        for (int g = first; g < first + RUN<BITS>; g++)
#pragma GCC unroll 8
            for (int j = 0; j < N; j++) {
                const Ints pairs = quad_products<BITS>(weights[g], every_quad(a[j].q + 4 * g));
                if (g > first) sum[j] = held(add_16(sum[j], pairs));
                else sum[j] = held(BITS == 6 ? add_16(every_int(a[j].start[first * PARTS / QUADS]), pairs) : pairs);
            }
#pragma GCC unroll 8
        for (int j = 0; j < N; j++)
            total[j] = first ? held(add_32(total[j], sum_pairs(sum[j], factors))) : sum_pairs(sum[j], factors);
    }
#pragma GCC unroll 8
    for (int j = 0; j < N; j++) out[j] = to_floats(total[j]);
}

#endif

}  // namespace spec_cpu
