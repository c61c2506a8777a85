// arrow_abi.h - the two structs of the Arrow C data interface, laid out as its specification says.

#ifndef SPINNEY_ARROW_ABI_H
#define SPINNEY_ARROW_ABI_H

#include <stdint.h>

struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct ArrowSchema **children, *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct ArrowArray **children, *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif
