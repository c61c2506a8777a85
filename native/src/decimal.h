// decimal.h - rounding to double what does not fit in a machine word.

#ifndef SPINNEY_DECIMAL_H
#define SPINNEY_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>

// mantissa * 2^exponent, or a little more (by less than one in the mantissa). The mantissa's highest bit is set.
typedef struct spinney_binary {
  uint64_t mantissa;
  bool more;
  int64_t exponent;
} spinney_binary;

// The nearest double, ties to even; infinity if it is beyond the greatest.
double spinney_binary_round(spinney_binary value);

// The size of the JSON number in the text, which is well formed and not zero. `point` says where the decimal point is
// when all is written out: the number is 0.d1d2d3... * 10^point, d1 not 0.
double spinney_decimal_value(const char *at, const char *end, int64_t point);

#endif
