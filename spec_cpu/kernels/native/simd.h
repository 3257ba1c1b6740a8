// The vector operations that the kernels are written in: 16 lanes of 32 bits with AVX-512, else 8.
//
// A lane belongs to one row of the matrix, from the first product to the result: no operation here
// sums across lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace spec_cpu {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

using Ints = __m512i;
using Floats = __m512;
constexpr int LANES = 16;

inline Ints load_ints(const void * p) { return _mm512_loadu_si512(p); }
inline Ints zero_ints() { return _mm512_setzero_si512(); }
inline Ints every_byte(int8_t x) { return _mm512_set1_epi8(x); }
inline Ints every_int(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints both(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
template <int BITS> inline Ints shift_right(Ints a) { return _mm512_srli_epi16(a, BITS); }
template <int BITS> inline Ints shift_left(Ints a) { return _mm512_slli_epi16(a, BITS); }
inline Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
inline Floats load_u8(const uint8_t * p) {
    return to_floats(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
}
inline Floats load_i8(const int8_t * p) {
    return to_floats(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
}
inline Floats load_f16(const uint16_t * p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
}
inline Floats load_bf16(const uint16_t * p) {
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
inline Floats every_float(float x) { return _mm512_set1_ps(x); }
inline Floats zero_floats() { return _mm512_setzero_ps(); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline void store(float * p, Floats a) { _mm512_storeu_ps(p, a); }

#else

using Ints = __m256i;
using Floats = __m256;
constexpr int LANES = 8;

inline Ints load_ints(const void * p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }
inline Ints zero_ints() { return _mm256_setzero_si256(); }
inline Ints every_byte(int8_t x) { return _mm256_set1_epi8(x); }
inline Ints every_int(int32_t x) { return _mm256_set1_epi32(x); }
inline Ints both(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }
template <int BITS> inline Ints shift_right(Ints a) { return _mm256_srli_epi16(a, BITS); }
template <int BITS> inline Ints shift_left(Ints a) { return _mm256_slli_epi16(a, BITS); }
inline Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
inline Floats load_u8(const uint8_t * p) {
    return to_floats(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
}
inline Floats load_i8(const int8_t * p) {
    return to_floats(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
}
inline Floats load_f16(const uint16_t * p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}
inline Floats load_bf16(const uint16_t * p) {
    const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
inline Floats every_float(float x) { return _mm256_set1_ps(x); }
inline Floats zero_floats() { return _mm256_setzero_ps(); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline void store(float * p, Floats a) { _mm256_storeu_ps(p, a); }

#endif

constexpr int VECTOR_BYTES = 4 * LANES;

inline Ints every_quad(const int8_t * p) {
    int32_t quad;
    __builtin_memcpy(&quad, p, sizeof quad);
    return every_int(quad);
}

// Products of `GROUPS` groups of four weights with four activations: each lane's sum, exact.
//
// `weights` are unsigned and below 2^BITS; `activations` are GROUPS times four bytes in [-127, 127].
#if (defined(__AVX512VNNI__) && defined(__AVX512BW__)) || (defined(__AVXVNNI__) && !defined(__AVX512BW__))

#if defined(__AVX512BW__)
inline Ints add_products(Ints sum, Ints w, Ints a) { return _mm512_dpbusd_epi32(sum, w, a); }
constexpr const char * ISA = "AVX-512 VNNI";
#else
inline Ints add_products(Ints sum, Ints w, Ints a) { return _mm256_dpbusd_avx_epi32(sum, w, a); }
constexpr const char * ISA = "AVX-VNNI";
#endif

template <int BITS, int GROUPS> inline Ints dot(const Ints * weights, const int8_t * activations) {
    Ints sum = zero_ints();
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) sum = add_products(sum, weights[g], every_quad(activations + 4 * g));
    return sum;
}

#else

#if defined(__AVX512BW__)
inline Ints pair_products(Ints w, Ints a) { return _mm512_maddubs_epi16(w, a); }
inline Ints add_16(Ints a, Ints b) { return _mm512_add_epi16(a, b); }
inline Ints add_32(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints sum_pairs(Ints a) { return _mm512_madd_epi16(a, _mm512_set1_epi16(1)); }
inline Ints times_16(Ints a) { return _mm512_slli_epi32(a, 4); }
constexpr const char * ISA = "AVX-512";
#else
inline Ints pair_products(Ints w, Ints a) { return _mm256_maddubs_epi16(w, a); }
inline Ints add_16(Ints a, Ints b) { return _mm256_add_epi16(a, b); }
inline Ints add_32(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints sum_pairs(Ints a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
inline Ints times_16(Ints a) { return _mm256_slli_epi32(a, 4); }
constexpr const char * ISA = "AVX2";
#endif

// How many pairs of products one 16-bit sum holds without overflow: 8 for 4 bits, 4 for 5, 2 for 6.
constexpr int pairs_that_fit(int bits) { return 32767 / (2 * 127 * ((1 << bits) - 1)); }

template <int BITS, int GROUPS> inline Ints dot(const Ints * weights, const int8_t * activations) {
    if constexpr (BITS == 8) {  // a product of 8 bits saturates: low and high half apart
        Ints low[GROUPS], high[GROUPS];
#pragma GCC unroll 8
        for (int g = 0; g < GROUPS; g++) {
            low[g] = both(weights[g], every_byte(15));
            high[g] = both(shift_right<4>(weights[g]), every_byte(15));
        }
        return add_32(dot<4, GROUPS>(low, activations), times_16(dot<4, GROUPS>(high, activations)));
    } else {
        constexpr int RUN = pairs_that_fit(BITS);
        Ints sum = zero_ints();
#pragma GCC unroll 8
        for (int first = 0; first < GROUPS; first += RUN) {
            Ints run = pair_products(weights[first], every_quad(activations + 4 * first));
#pragma GCC unroll 8
            for (int g = first + 1; g < first + RUN && g < GROUPS; g++)
                run = add_16(run, pair_products(weights[g], every_quad(activations + 4 * g)));
            sum = first ? add_32(sum, sum_pairs(run)) : sum_pairs(run);
        }
        return sum;
    }
}

#endif

}  // namespace spec_cpu
