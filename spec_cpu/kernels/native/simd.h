// The vector operations that the kernels are written in: 16 lanes of 32 bits with AVX-512, else 8.
//
// A lane belongs to one row of the matrix, from the first product to the result: no operation here
// sums across lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

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
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats minus(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats divided(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats rounded(Floats a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Floats times_power_of_2(Floats a, Floats exponent) { return _mm512_scalef_ps(a, exponent); }
inline uint32_t lanes_above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Floats zero_unless_above(Floats x, Floats a, Floats b) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
}
inline Floats load_floats(const float * p) { return _mm512_loadu_ps(p); }
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
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats minus(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats divided(Floats a, Floats b) { return _mm256_div_ps(a, b); }
inline Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats rounded(Floats a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Floats times_power_of_2(Floats a, Floats exponent) {  // for normal results
    const __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127));
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}
inline uint32_t lanes_above(Floats a, Floats b) {
    return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
}
inline Floats zero_unless_above(Floats x, Floats a, Floats b) {
    return _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
inline Floats load_floats(const float * p) { return _mm256_loadu_ps(p); }
inline void store(float * p, Floats a) { _mm256_storeu_ps(p, a); }

#endif

constexpr int VECTOR_BYTES = 4 * LANES;

// e^x to 2 units in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cephes, expf).
inline Floats exponential(Floats x) {
    x = larger(every_float(-87), smaller(every_float(88), x));  // in this order NaN stays NaN
    const Floats n = rounded(mul(x, every_float(1.44269504f)));
    const Floats r = fma(n, every_float(2.12194440e-4f), fma(n, every_float(-0.693359375f), x));
    Floats p = every_float(1.9875691500e-4f);
    for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = fma(p, r, every_float(c));
    return times_power_of_2(add(fma(mul(p, r), r, r), every_float(1)), n);
}

inline float sum_of(Floats x) {
    float lanes[LANES], sum = 0;
    store(lanes, x);
    for (const float lane : lanes) sum += lane;
    return sum;
}

inline Ints every_quad(const int8_t * p) {
    int32_t quad;
    __builtin_memcpy(&quad, p, sizeof quad);
    return every_int(quad);
}

// For what a call would move from registers to memory.
#define ALWAYS_INLINE __attribute__((always_inline)) inline

// x in a register, worked out where the text has it: the compiler neither moves nor repeats it.
template <class Vector> inline Vector held(Vector x) {
    asm("" : "+v"(x));
    return x;
}

}  // namespace spec_cpu
