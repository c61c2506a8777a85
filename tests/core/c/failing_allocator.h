// failing_allocator.h - an allocator that says no at the n-th request, to try every n.

#ifndef FAILING_ALLOCATOR_H
#define FAILING_ALLOCATOR_H

#include <stdlib.h>

#include "spinney.h"

typedef struct failing_allocator {
  long left;  // requests that still succeed; negative: all do
} failing_allocator;

static inline void *failing_resize(void *context, void *memory, size_t size) {
  failing_allocator *failing = context;
  if (size == 0) {
    free(memory);
    return NULL;
  }
  if (failing->left == 0) return NULL;
  if (failing->left > 0) failing->left--;
  return realloc(memory, size);
}

#endif
