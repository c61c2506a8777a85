// simd.c - the portable kernels, and the choice among all.

#include "simd.h"

#include <string.h>

// ---- Plain C ---------------------------------------------------------------------------------------------------

static uint32_t dominated_block(const float *points, uint32_t coordinates, const float *query) {
  uint8_t all[SPINNEY_LANES];
  for (int i = 0; i < SPINNEY_LANES; i++) all[i] = points[i] <= query[0];
  for (uint32_t c = 1; c < coordinates; c++) {
    const float *row = points + c * SPINNEY_LANES;
    for (int i = 0; i < SPINNEY_LANES; i++) all[i] &= row[i] <= query[c];
  }
  uint32_t mask = 0;
  for (int i = 0; i < SPINNEY_LANES; i++) mask |= (uint32_t)all[i] << i;
  return mask;
}

static uint64_t dominated(const float *points, size_t stride, uint32_t coordinates, uint32_t blocks,
                          const float *query) {
  uint64_t mask = 0;
  for (uint32_t b = 0; b < blocks; b++)
    mask |= (uint64_t)dominated_block(points + b * stride, coordinates, query) << (b * SPINNEY_LANES);
  return mask;
}

static size_t stab(const double *low, const double *minus_high, const uint32_t *ids, uint32_t count, double x,
                   uint32_t *out) {
  size_t n = 0;
  for (uint32_t i = 0; i < count; i++) {
    out[n] = ids[i];
    n += (low[i] <= x) & (minus_high[i] <= -x);
  }
  return n;
}

static void copy(uint32_t *out, const uint32_t *source, size_t count) { memcpy(out, source, count * sizeof *out); }

static const spinney_kernels scalar = {SPINNEY_SCALAR, dominated, stab, copy};

// ---- Choice ----------------------------------------------------------------------------------------------------

const spinney_kernels *spinney_kernels_of(spinney_simd simd) {
  switch (simd) {
    case SPINNEY_SCALAR: return &scalar;
#if defined(__x86_64__)
    case SPINNEY_SSE2: return &spinney_kernels_sse2;
    case SPINNEY_AVX2: return __builtin_cpu_supports("avx2") ? &spinney_kernels_avx2 : NULL;
    case SPINNEY_AVX512: return __builtin_cpu_supports("avx512f") ? &spinney_kernels_avx512 : NULL;
#elif defined(__aarch64__)
    case SPINNEY_NEON: return &spinney_kernels_neon;
#endif
    default: return NULL;
  }
}

spinney_simd spinney_simd_best(void) {
#if defined(__x86_64__)
  if (spinney_kernels_of(SPINNEY_AVX512)) return SPINNEY_AVX512;
  return spinney_kernels_of(SPINNEY_AVX2) ? SPINNEY_AVX2 : SPINNEY_SSE2;
#elif defined(__aarch64__)
  return SPINNEY_NEON;
#else
  return SPINNEY_SCALAR;
#endif
}

const char *spinney_simd_name(spinney_simd simd) {
  static const char *const names[] = {"scalar", "SSE2", "AVX2", "AVX-512", "NEON"};
  return (unsigned)simd < sizeof names / sizeof *names ? names[simd] : "unknown";
}
