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
#pragma GCC target("avx2,fma,f16c")
#include "simd_avx2.h"

namespace baton::avx2 {
namespace {
#include "gemm_quantised.inl"
#include "gemm.inl"
#include "store.inl"
#include "attention.inl"
}  // namespace
#include "step.inl"
#include "choose.inl"
}  // namespace baton::avx2
#pragma GCC pop_options
