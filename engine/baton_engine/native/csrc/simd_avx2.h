// The same sixteen lanes in two AVX2 registers; a bfloat16 is the upper half of a float, so pairs are
// widened by a shift or a mask and multiplied in float32.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace baton::avx2 {

constexpr int kTileRows = 2;       // × 2 panels × 2 registers = 8 accumulators of 16
constexpr int kBlockTileRows = 1;  // × 2 panels × 2 registers, of integer and of float accumulators each

struct Lanes {
    __m256 a, b;
};
struct Pairs {
    __m256i a, b;
};

inline Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Lanes x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline Lanes add(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Lanes sub(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Lanes mul(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Lanes div(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Lanes fma(Lanes x, Lanes y, Lanes z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Lanes max(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Lanes min(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline float sum(Lanes x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Lanes x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline bool has_nan(Lanes x) {
    const __m256 a = _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), b = _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q);
    return _mm256_movemask_ps(_mm256_or_ps(a, b)) != 0;
}
// The first `count` lanes from x, the others from y.
inline Lanes split_at(int count, Lanes x, Lanes y) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 a = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
    const __m256 b = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), lane));
    return {_mm256_blendv_ps(y.a, x.a, a), _mm256_blendv_ps(y.b, x.b, b)};
}
inline Lanes keep_first(Lanes x, int count, float other) { return split_at(count, x, all(other)); }
inline Lanes drop_first(Lanes x, int count, float other) { return split_at(count, all(other), x); }
inline Lanes round_to_integer(Lanes x) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
inline __m256 times_power_of_two(__m256 x, __m256 n) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}
inline Lanes times_power_of_two(Lanes x, Lanes n) {
    return {times_power_of_two(x.a, n.a), times_power_of_two(x.b, n.b)};
}

inline Pairs load_pairs(const uint16_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
inline Pairs all_pairs(const uint16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm256_set1_epi32(pair), _mm256_set1_epi32(pair)};
}
// The same of signed bytes: a bfloat16 holds each exactly, in the upper half of its float.
inline __m256i widen_pairs(const int8_t* p) {
    const __m256i pairs = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256 first = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16));
    const __m256 second = _mm256_cvtepi32_ps(_mm256_srai_epi32(pairs, 16));
    return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(first), 16), _mm256_castps_si256(second));
}
inline Pairs load_pairs(const int8_t* p) { return {widen_pairs(p), widen_pairs(p + 16)}; }
inline void store_pairs(uint16_t* p, Pairs x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), x.b);
}
inline __m256 first_of_pair(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
inline __m256 second_of_pair(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline __m256 dot(__m256 sum, __m256i x, __m256i y) {
    sum = _mm256_fmadd_ps(second_of_pair(x), second_of_pair(y), sum);
    return _mm256_fmadd_ps(first_of_pair(x), first_of_pair(y), sum);
}
inline Lanes dot(Lanes sum, Pairs x, Pairs y) { return {dot(sum.a, x.a, y.a), dot(sum.b, x.b, y.b)}; }

// Round to nearest even; a NaN stays one, which plain rounding of the bits would not promise.
inline __m256i to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), is_nan);
}
inline void store_bf16(uint16_t* p, Lanes x) {
    const __m256i packed = _mm256_packus_epi32(to_bf16(x.a), to_bf16(x.b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline __m256 load_bf16_half(const uint16_t* p) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}
inline Lanes load_bf16(const uint16_t* p) { return {load_bf16_half(p), load_bf16_half(p + 8)}; }

struct Ints {
    __m256i a, b;
};
inline Ints all_ints(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Ints load_ints(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Ints all_quads(const uint8_t* p) {
    int32_t quad;
    __builtin_memcpy(&quad, p, 4);
    return all_ints(quad);
}
// Sums of two products of bytes fit in 16 bits where weights are under 16. Others are widened first: the
// instruction for bytes would cut them.
template <bool small>
inline __m256i dot_bytes(__m256i sum, __m256i weights, __m256i x) {
    if constexpr (small) {
        const __m256i pairs = _mm256_maddubs_epi16(weights, x);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    const __m256i low = _mm256_set1_epi16(255);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(weights, low), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
template <bool small>
inline Ints dot_bytes(Ints sum, Ints weights, Ints x) {
    return {dot_bytes<small>(sum.a, weights.a, x.a), dot_bytes<small>(sum.b, weights.b, x.b)};
}
inline __m256i low_nibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline Ints low_nibbles(Ints x) { return {low_nibbles(x.a), low_nibbles(x.b)}; }
inline Ints high_nibbles(Ints x) {
    return {low_nibbles(_mm256_srli_epi16(x.a, 4)), low_nibbles(_mm256_srli_epi16(x.b, 4))};
}
inline Lanes to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline __m256 load_eight_halves(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Lanes load_halves(const uint16_t* p) { return {load_eight_halves(p), load_eight_halves(p + 8)}; }

inline __m256i magnitude(__m256 x) { return _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.f), x)); }
// The largest absolute value of 32. Compared as integers, which puts infinity and NaN above all numbers.
inline float peak(Lanes low, Lanes high) {
    const __m256i a = _mm256_max_epi32(magnitude(low.a), magnitude(low.b));
    const __m256i eight = _mm256_max_epi32(a, _mm256_max_epi32(magnitude(high.a), magnitude(high.b)));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(most));
}
// 32 floats × factor to signed bytes, rounded to nearest even; returns the sum of the bytes.
inline int put_bytes(int8_t* p, Lanes low, Lanes high, Lanes factor) {
    const Lanes x = mul(low, factor), y = mul(high, factor);
    const __m256i a = _mm256_cvtps_epi32(x.a), b = _mm256_cvtps_epi32(x.b);
    const __m256i c = _mm256_cvtps_epi32(y.a), d = _mm256_cvtps_epi32(y.b);
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(packed, order));
    const __m256i eight = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

}  // namespace baton::avx2
