// simd_neon.c - the kernels for 64-bit ARM.

#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>

#include "simd.h"

static uint32_t four(const float *points, uint32_t coordinates, const float *query) {
  static const uint32_t bits[4] = {1, 2, 4, 8};
  uint32x4_t all = vcleq_f32(vld1q_f32(points), vdupq_n_f32(query[0]));
  for (uint32_t c = 1; c < coordinates; c++)
    all = vandq_u32(all, vcleq_f32(vld1q_f32(points + c * SPINNEY_LANES), vdupq_n_f32(query[c])));
  return vaddvq_u32(vandq_u32(all, vld1q_u32(bits)));
}

static uint64_t dominated(const float *points, size_t stride, uint32_t coordinates, uint32_t blocks,
                          const float *query) {
  uint64_t mask = 0;
  for (uint32_t b = 0; b < blocks; b++)
    for (uint32_t i = 0; i < SPINNEY_LANES; i += 4)
      mask |= (uint64_t)four(points + b * stride + i, coordinates, query) << (b * SPINNEY_LANES + i);
  return mask;
}

static size_t stab(const double *low, const double *minus_high, const uint32_t *ids, uint32_t count, double x,
                   uint32_t *out) {
  float64x2_t here = vdupq_n_f64(x), minus = vdupq_n_f64(-x);
  size_t n = 0;
  for (uint32_t i = 0; i < count; i += 2) {
    uint64x2_t both = vandq_u64(vcleq_f64(vld1q_f64(low + i), here), vcleq_f64(vld1q_f64(minus_high + i), minus));
    out[n] = ids[i];
    n += vgetq_lane_u64(both, 0) & 1;
    out[n] = ids[i + 1];
    n += vgetq_lane_u64(both, 1) & (i + 1 < count);
  }
  return n;
}

static void copy(uint32_t *out, const uint32_t *source, size_t count) { memcpy(out, source, count * sizeof *out); }

const spinney_kernels spinney_kernels_neon = {SPINNEY_NEON, dominated, stab, copy};

#else
typedef int spinney_no_neon;  // a translation unit must not be empty
#endif
