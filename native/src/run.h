// run.h - ids sorted by a number, in chunks, so that "all up to x" is answered by copying.

#ifndef SPINNEY_RUN_H
#define SPINNEY_RUN_H

#include "memory.h"
#include "simd.h"

typedef struct run_part {
  uint32_t *ids;   // capacity of them, then as many keys
  uint32_t count;  // never 0
  uint32_t capacity;
} run_part;

// Sorted by (key, id); no pair is there twice. All zero is the empty run.
typedef struct spinney_run {
  double *firsts;   // the first key of each part, contiguous to be searched fast
  run_part *parts;  // in the same block
  uint32_t n_parts;
  uint32_t capacity;
} spinney_run;

static inline double *spinney_run_keys(const run_part *part) { return (double *)(void *)(part->ids + part->capacity); }

bool spinney_run_insert(spinney_run *run, spinney_pool *pool, double key, uint32_t id);  // false: no memory
void spinney_run_erase(spinney_run *run, spinney_pool *pool, double key, uint32_t id);   // the pair is there
void spinney_run_free(spinney_run *run, spinney_pool *pool);

// Each writes ids to out, which has SPINNEY_COPY_SLACK more room than the answer, and returns the end of the answer.
uint32_t *spinney_run_copy_up_to(const spinney_run *run, double key, const spinney_kernels *kernels, uint32_t *out);
uint32_t *spinney_run_copy_equal(const spinney_run *run, double key, const spinney_kernels *kernels, uint32_t *out);
uint32_t *spinney_run_copy_all(const spinney_run *run, const spinney_kernels *kernels, uint32_t *out);

#endif
