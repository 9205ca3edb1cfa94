// Sixteen float lanes in one AVX-512 register; bfloat16 pairs go through the CPU's own dot product.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace baton::avx512 {

constexpr int kTileRows = 12;      // × 2 panels = 24 accumulators of 32 registers
constexpr int kBlockTileRows = 6;  // × 2 panels, of integer and of float accumulators each

using Lanes = __m512;
using Pairs = __m512bh;  // 16 lanes of two bfloat16

inline Lanes zero() { return _mm512_setzero_ps(); }
inline Lanes all(float x) { return _mm512_set1_ps(x); }
inline Lanes load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Lanes x) { _mm512_storeu_ps(p, x); }
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes min(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
inline float sum(Lanes x) { return _mm512_reduce_add_ps(x); }
inline float largest(Lanes x) { return _mm512_reduce_max_ps(x); }
inline bool has_nan(Lanes x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }
inline Lanes keep_first(Lanes x, int count, float other) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << count) - 1), all(other), x);
}
inline Lanes drop_first(Lanes x, int count, float other) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << count) - 1), x, all(other));
}
inline Lanes round_to_integer(Lanes x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Lanes times_power_of_two(Lanes x, Lanes n) { return _mm512_scalef_ps(x, n); }

inline Pairs load_pairs(const uint16_t* p) { return (Pairs)_mm512_loadu_si512(p); }
inline Pairs all_pairs(const uint16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return (Pairs)_mm512_set1_epi32(pair);
}
inline Lanes dot(Lanes sum, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sum, a, b); }

// The same of signed bytes: a bfloat16 holds each exactly.
inline Pairs load_pairs(const int8_t* p) {
    const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16))));
    return _mm512_cvtne2ps_pbh(high, low);
}
inline void store_pairs(uint16_t* p, Pairs x) { _mm512_storeu_si512(p, (__m512i)x); }

inline void store_bf16(uint16_t* p, Lanes x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x));
}
inline Lanes load_bf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

using Ints = __m512i;  // 16 sums of int32, or 16 quads of bytes
inline Ints all_ints(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints load_ints(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Ints all_quads(const uint8_t* p) {
    int32_t quad;
    __builtin_memcpy(&quad, p, 4);
    return _mm512_set1_epi32(quad);
}
// Unsigned weights, signed activations. Exact: neither products nor their sums are cut. small: weights under 16.
template <bool small>
inline Ints dot_bytes(Ints sum, Ints weights, Ints x) { return _mm512_dpbusd_epi32(sum, weights, x); }
inline Ints low_nibbles(Ints x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline Ints high_nibbles(Ints x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }
inline Lanes to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
inline Lanes load_halves(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// The largest absolute value of 32. Compared as integers, which puts infinity and NaN above all numbers.
inline float peak(Lanes low, Lanes high) {
    const Lanes sign = _mm512_set1_ps(-0.f);
    const __m512i a = _mm512_castps_si512(_mm512_andnot_ps(sign, low));
    const int32_t bits = _mm512_reduce_max_epi32(_mm512_max_epi32(a, _mm512_castps_si512(_mm512_andnot_ps(sign, high))));
    float most;
    __builtin_memcpy(&most, &bits, 4);
    return most;
}
// 32 floats × factor to signed bytes, rounded to nearest even; returns the sum of the bytes.
inline int put_bytes(int8_t* p, Lanes low, Lanes high, Lanes factor) {
    const __m512i a = _mm512_cvtps_epi32(mul(low, factor)), b = _mm512_cvtps_epi32(mul(high, factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm512_cvtsepi32_epi8(b));
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
}

}  // namespace baton::avx512
