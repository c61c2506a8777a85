// simd_x86.c - the kernels for SSE2, AVX2 and AVX-512. Each function names its instruction set, so that one build runs
// everywhere.

#if defined(__x86_64__)

#include <immintrin.h>

#include "simd.h"

#define TARGET(set) __attribute__((target(set)))

// ---- SSE2 ------------------------------------------------------------------------------------------------------

static uint32_t sse2_four(const float *points, uint32_t coordinates, const float *query) {
  __m128 all = _mm_cmple_ps(_mm_loadu_ps(points), _mm_set1_ps(query[0]));
  for (uint32_t c = 1; c < coordinates; c++)
    all = _mm_and_ps(all, _mm_cmple_ps(_mm_loadu_ps(points + c * SPINNEY_LANES), _mm_set1_ps(query[c])));
  return (uint32_t)_mm_movemask_ps(all);
}

static uint64_t sse2_dominated(const float *points, size_t stride, uint32_t coordinates, uint32_t blocks,
                               const float *query) {
  uint64_t mask = 0;
  for (uint32_t b = 0; b < blocks; b++)
    for (uint32_t i = 0; i < SPINNEY_LANES; i += 4)
      mask |= (uint64_t)sse2_four(points + b * stride + i, coordinates, query) << (b * SPINNEY_LANES + i);
  return mask;
}

// The ids of the set bits, one after another.
static inline size_t append(uint32_t *out, const uint32_t *ids, uint32_t mask) {
  size_t n = 0;
  for (; mask; mask &= mask - 1) out[n++] = ids[__builtin_ctz(mask)];
  return n;
}

static inline uint32_t first_bits(uint32_t count) { return count < 32 ? (1u << count) - 1 : UINT32_MAX; }

static uint32_t sse2_stab_two(const double *low, const double *minus_high, __m128d x, __m128d minus_x) {
  __m128d from = _mm_cmple_pd(_mm_loadu_pd(low), x), to = _mm_cmple_pd(_mm_loadu_pd(minus_high), minus_x);
  return (uint32_t)_mm_movemask_pd(_mm_and_pd(from, to));
}

static size_t sse2_stab(const double *low, const double *minus_high, const uint32_t *ids, uint32_t count, double x,
                        uint32_t *out) {
  __m128d here = _mm_set1_pd(x), minus = _mm_set1_pd(-x);
  size_t n = 0;
  for (uint32_t i = 0; i < count; i += 8) {
    uint32_t mask = 0;
    for (uint32_t k = 0; k < 8; k += 2) mask |= sse2_stab_two(low + i + k, minus_high + i + k, here, minus) << k;
    n += append(out + n, ids + i, mask & first_bits(count - i));
  }
  return n;
}

static void sse2_copy(uint32_t *out, const uint32_t *source, size_t count) {
  for (size_t i = 0; i < count; i += SPINNEY_LANES)
    for (size_t k = i; k < i + SPINNEY_LANES; k += 4)
      _mm_storeu_si128((__m128i *)(out + k), _mm_loadu_si128((const __m128i *)(source + k)));
}

const spinney_kernels spinney_kernels_sse2 = {SPINNEY_SSE2, sse2_dominated, sse2_stab, sse2_copy};

// ---- AVX2 ------------------------------------------------------------------------------------------------------

TARGET("avx2")
static uint32_t avx2_eight(const float *points, uint32_t coordinates, const float *query) {
  __m256 all = _mm256_cmp_ps(_mm256_loadu_ps(points), _mm256_set1_ps(query[0]), _CMP_LE_OQ);
  for (uint32_t c = 1; c < coordinates; c++) {
    __m256 row = _mm256_loadu_ps(points + c * SPINNEY_LANES);
    all = _mm256_and_ps(all, _mm256_cmp_ps(row, _mm256_set1_ps(query[c]), _CMP_LE_OQ));
  }
  return (uint32_t)_mm256_movemask_ps(all);
}

TARGET("avx2")
static uint64_t avx2_dominated(const float *points, size_t stride, uint32_t coordinates, uint32_t blocks,
                               const float *query) {
  uint64_t mask = 0;
  for (uint32_t b = 0; b < blocks; b++)
    for (uint32_t i = 0; i < SPINNEY_LANES; i += 8)
      mask |= (uint64_t)avx2_eight(points + b * stride + i, coordinates, query) << (b * SPINNEY_LANES + i);
  return mask;
}

TARGET("avx2")
static size_t avx2_stab(const double *low, const double *minus_high, const uint32_t *ids, uint32_t count, double x,
                        uint32_t *out) {
  __m256d here = _mm256_set1_pd(x), minus = _mm256_set1_pd(-x);
  size_t n = 0;
  for (uint32_t i = 0; i < count; i += 8) {
    uint32_t mask = 0;
    for (uint32_t k = 0; k < 8; k += 4) {
      __m256d from = _mm256_cmp_pd(_mm256_loadu_pd(low + i + k), here, _CMP_LE_OQ);
      __m256d to = _mm256_cmp_pd(_mm256_loadu_pd(minus_high + i + k), minus, _CMP_LE_OQ);
      mask |= (uint32_t)_mm256_movemask_pd(_mm256_and_pd(from, to)) << k;
    }
    n += append(out + n, ids + i, mask & first_bits(count - i));
  }
  return n;
}

TARGET("avx2")
static void avx2_copy(uint32_t *out, const uint32_t *source, size_t count) {
  for (size_t i = 0; i < count; i += SPINNEY_LANES) {
    _mm256_storeu_si256((__m256i *)(out + i), _mm256_loadu_si256((const __m256i *)(source + i)));
    _mm256_storeu_si256((__m256i *)(out + i + 8), _mm256_loadu_si256((const __m256i *)(source + i + 8)));
  }
}

const spinney_kernels spinney_kernels_avx2 = {SPINNEY_AVX2, avx2_dominated, avx2_stab, avx2_copy};

// ---- AVX-512 ---------------------------------------------------------------------------------------------------

TARGET("avx512f")
static uint64_t avx512_dominated(const float *points, size_t stride, uint32_t coordinates, uint32_t blocks,
                                 const float *query) {
  uint64_t mask = 0;
  for (uint32_t b = 0; b < blocks; b++, points += stride) {
    __mmask16 all = _mm512_cmp_ps_mask(_mm512_loadu_ps(points), _mm512_set1_ps(query[0]), _CMP_LE_OQ);
    for (uint32_t c = 1; c < coordinates; c++) {
      __m512 row = _mm512_loadu_ps(points + c * SPINNEY_LANES);
      all = _mm512_mask_cmp_ps_mask(all, row, _mm512_set1_ps(query[c]), _CMP_LE_OQ);
    }
    mask |= (uint64_t)all << (b * SPINNEY_LANES);
  }
  return mask;
}

TARGET("avx512f")
static size_t avx512_stab(const double *low, const double *minus_high, const uint32_t *ids, uint32_t count, double x,
                          uint32_t *out) {
  __m512d here = _mm512_set1_pd(x), minus = _mm512_set1_pd(-x);
  size_t n = 0;
  for (uint32_t i = 0; i < count; i += SPINNEY_LANES) {
    uint32_t mask = 0;
    for (uint32_t k = 0; k < SPINNEY_LANES; k += 8) {
      __mmask8 from = _mm512_cmp_pd_mask(_mm512_loadu_pd(low + i + k), here, _CMP_LE_OQ);
      mask |= (uint32_t)_mm512_mask_cmp_pd_mask(from, _mm512_loadu_pd(minus_high + i + k), minus, _CMP_LE_OQ) << k;
    }
    mask &= first_bits(count - i);
    _mm512_storeu_si512(out + n, _mm512_maskz_compress_epi32((__mmask16)mask, _mm512_loadu_si512(ids + i)));
    n += (size_t)__builtin_popcount(mask);
  }
  return n;
}

TARGET("avx512f")
static void avx512_copy(uint32_t *out, const uint32_t *source, size_t count) {
  for (size_t i = 0; i < count; i += SPINNEY_LANES) _mm512_storeu_si512(out + i, _mm512_loadu_si512(source + i));
}

const spinney_kernels spinney_kernels_avx512 = {SPINNEY_AVX512, avx512_dominated, avx512_stab, avx512_copy};

#else
typedef int spinney_no_x86;  // a translation unit must not be empty
#endif
