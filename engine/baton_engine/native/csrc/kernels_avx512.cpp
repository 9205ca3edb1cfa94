#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "model.h"
#include "pack.h"

// Only what follows may use these instructions: headers of the standard library stay runnable everywhere.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni,avx2,fma,f16c")
#include "simd_avx512.h"

namespace baton::avx512 {
namespace {
#include "gemm_quantised.inl"
#include "gemm.inl"
#include "store.inl"
#include "attention.inl"
}  // namespace
#include "step.inl"
#include "choose.inl"
}  // namespace baton::avx512
#pragma GCC pop_options
