// simd.h - the loops that matching spends its time in, once per instruction set, all with equal answers.

#ifndef SPINNEY_SIMD_H
#define SPINNEY_SIMD_H

#include "internal.h"

enum {
  SPINNEY_LANES = 16,        // slots of a block
  SPINNEY_GROUP_BLOCKS = 4,  // blocks that one mask speaks of
  SPINNEY_COPY_SLACK = 16    // ids that copy and stab may write beyond their answer
};

typedef struct spinney_kernels {
  spinney_simd simd;

  // Blocks of 16 points, stride floats apart; coordinate c of the points of a block lies at 16 c. Bit i: every
  // coordinate of point i is <= that of the query. NaN never is. 1 <= blocks <= SPINNEY_GROUP_BLOCKS.
  uint64_t (*dominated)(const float *points, size_t stride, uint32_t coordinates, uint32_t blocks, const float *query);

  // Appends ids[i] to out for every i < count with low[i] <= x and minus_high[i] <= -x; how many. The arrays may be
  // read up to the next multiple of 16.
  size_t (*stab)(const double *low, const double *minus_high, const uint32_t *ids, uint32_t count, double x,
                 uint32_t *out);

  // Copies count ids; source is readable and out writable up to the next multiple of 16.
  void (*copy)(uint32_t *out, const uint32_t *source, size_t count);
} spinney_kernels;

// NULL: not to be had on this machine.
const spinney_kernels *spinney_kernels_of(spinney_simd simd);

#if defined(__x86_64__)
extern const spinney_kernels spinney_kernels_sse2, spinney_kernels_avx2, spinney_kernels_avx512;
#elif defined(__aarch64__)
extern const spinney_kernels spinney_kernels_neon;
#endif

#endif
