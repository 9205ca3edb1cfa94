// Sixteen float lanes in one AVX-512 register; bfloat16 pairs go through the CPU's own dot product.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace baton::avx512 {

constexpr int kTileRows = 12;  // × 2 panels = 24 accumulators of 32 registers

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
inline Lanes keep_first(Lanes x, int count, float other) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << count) - 1), all(other), x);
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

inline void store_bf16(uint16_t* p, Lanes x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x));
}
inline Lanes load_bf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
// 32 signed bytes to bfloat16: every one is exact.
inline void bytes_to_bf16(const int8_t* from, uint16_t* to) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
    const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

}  // namespace baton::avx512
