// Three ways to round, the cheapest that is exact: one operation on doubles; 128 bits; as many bits as it takes.

#include "number.h"

#include <float.h>
#include <stddef.h>

#include "decimal.h"

_Static_assert(FLT_EVAL_METHOD == 0, "doubles must be computed as doubles");

typedef struct scanned {
  uint64_t digits;   // the first 19 significant ones
  int64_t exponent;  // value = digits * 10^exponent, when there are no more
  int count;         // of digits in `digits`
  bool longer;       // digits other than 0 had to be left out
  bool negative;
} scanned;

enum {
  WORD_DIGITS = 19,    // as many as always fit in 64 bits
  EXACT_POWER = 22,    // 10^22 is a double
  WIDE_POWER = 27,     // 5^27 fits in 64 bits
  EXACT_DIGITS = 15,   // as many as always fit in a double
  EXACT_DIGITS_BITS = 53
};

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static const uint64_t powers_of_five[] = {
    UINT64_C(1), UINT64_C(5), UINT64_C(25), UINT64_C(125), UINT64_C(625), UINT64_C(3125), UINT64_C(15625),
    UINT64_C(78125), UINT64_C(390625), UINT64_C(1953125), UINT64_C(9765625), UINT64_C(48828125), UINT64_C(244140625),
    UINT64_C(1220703125), UINT64_C(6103515625), UINT64_C(30517578125), UINT64_C(152587890625), UINT64_C(762939453125),
    UINT64_C(3814697265625), UINT64_C(19073486328125), UINT64_C(95367431640625), UINT64_C(476837158203125),
    UINT64_C(2384185791015625), UINT64_C(11920928955078125), UINT64_C(59604644775390625),
    UINT64_C(298023223876953125), UINT64_C(1490116119384765625), UINT64_C(7450580596923828125)};

// ---- scanning

static bool is_digit(const char *at, const char *end) { return at < end && *at >= '0' && *at <= '9'; }

static const char *take_digits(const char *at, const char *end, scanned *number) {
  for (; is_digit(at, end); at++) {
    if (number->count < WORD_DIGITS) {
      number->digits = number->digits * 10 + (uint64_t)(*at - '0');
      number->count += number->digits != 0;  // leading zeros are not significant
    } else {
      number->exponent++;
      number->longer |= *at != '0';
    }
  }
  return at;
}

static const char *take_fraction(const char *at, const char *end, scanned *number, const char **problem) {
  if (!is_digit(at, end)) *problem = "expected a digit after the decimal point";
  const char *stop = take_digits(at, end, number);
  number->exponent -= stop - at;
  return stop;
}

static const char *take_exponent(const char *at, const char *end, scanned *number, const char **problem) {
  static const int64_t bound = INT64_C(1) << 60;  // no text has so many digits that more would make a difference
  bool negative = at < end && *at == '-';
  if (at < end && (*at == '-' || *at == '+')) at++;
  if (!is_digit(at, end)) *problem = "expected a digit in the exponent";
  int64_t size = 0;
  for (; is_digit(at, end); at++) {
    if (size < bound / 10) size = size * 10 + (*at - '0');
  }
  number->exponent += negative ? -size : size;
  return at;
}

static const char *scan(const char *at, const char *end, scanned *number, const char **problem) {
  number->negative = at < end && *at == '-';
  at += number->negative;
  if (!is_digit(at, end)) {
    *problem = "expected a digit";
    return at;
  }
  const char *stop = *at == '0' ? at + 1 : take_digits(at, end, number);
  if (*at == '0' && is_digit(stop, end)) *problem = "a number has no leading zeros";
  if (!*problem && stop < end && *stop == '.') stop = take_fraction(stop + 1, end, number, problem);
  if (!*problem && stop < end && (*stop == 'e' || *stop == 'E')) stop = take_exponent(stop + 1, end, number, problem);
  return stop;
}

// ---- 128 bits

// One digit in base 2^32 of a long division, and the rest. The divisor's highest bit is set, rest < divisor.
static uint64_t divide_digit(uint64_t *rest, uint64_t next, uint64_t divisor) {
  uint64_t top = divisor >> 32, bottom = divisor & UINT32_MAX;
  uint64_t digit = *rest / top, left = *rest % top;
  while (digit > UINT32_MAX || digit * bottom > (left << 32 | next)) {  // at most twice
    digit--;
    left += top;
    if (left > UINT32_MAX) break;
  }
  *rest = (*rest << 32 | next) - digit * divisor;
  return digit;
}

static int leading_zeros(uint64_t word) {
  int zeros = 0;
  for (int step = 32; step > 0; step /= 2) {
    if (word >> (64 - step)) continue;
    word <<= step;
    zeros += step;
  }
  return zeros;
}

// digits / 10^power, power up to 27.
static spinney_binary divide_wide(uint64_t digits, int power) {
  uint64_t divisor = powers_of_five[power];
  int digits_shift = leading_zeros(digits), divisor_shift = leading_zeros(divisor);
  digits <<= digits_shift;
  divisor <<= divisor_shift;
  int half = digits >= divisor;  // then halve, so that the quotient has 64 bits, the highest of them set
  uint64_t rest = digits >> half, low = half ? digits << 63 : 0;
  uint64_t high_digit = divide_digit(&rest, low >> 32, divisor);
  uint64_t quotient = high_digit << 32 | divide_digit(&rest, low & UINT32_MAX, divisor);
  return (spinney_binary){quotient, rest != 0, divisor_shift - digits_shift - power + half - 64};
}

// digits * 10^power, power up to 27.
static spinney_binary multiply_wide(uint64_t digits, int power) {
  uint64_t five = powers_of_five[power];
  uint64_t low = (digits & UINT32_MAX) * (five & UINT32_MAX);
  uint64_t cross = (digits >> 32) * (five & UINT32_MAX) + (low >> 32);
  uint64_t cross_low = (digits & UINT32_MAX) * (five >> 32) + (cross & UINT32_MAX);
  uint64_t high = (digits >> 32) * (five >> 32) + (cross >> 32) + (cross_low >> 32);
  low = cross_low << 32 | (low & UINT32_MAX);
  if (high == 0) {
    int shift = leading_zeros(low);
    return (spinney_binary){low << shift, false, power - shift};
  }
  int shift = leading_zeros(high);
  uint64_t top = shift ? high << shift | low >> (64 - shift) : high;
  return (spinney_binary){top, low << shift != 0, power + 64 - shift};
}

// ---- all together

static double small(const scanned *number) {
  double digits = (double)number->digits;
  return number->exponent < 0 ? digits / powers_of_ten[-number->exponent] : digits * powers_of_ten[number->exponent];
}

static double value(const scanned *number, const char *at, const char *end) {
  int64_t power = number->exponent < 0 ? -number->exponent : number->exponent;
  if (number->digits == 0) return 0.0;
  if (!number->longer && power <= EXACT_POWER && number->digits >> EXACT_DIGITS_BITS == 0) return small(number);
  if (number->longer || power > WIDE_POWER) return spinney_decimal_value(at, end, number->exponent + number->count);
  return spinney_binary_round(number->exponent < 0 ? divide_wide(number->digits, (int)power)
                                                   : multiply_wide(number->digits, (int)power));
}

// ---- what most numbers are

static const char *take_some(const char *at, const char *end, uint64_t *digits) {
  for (; is_digit(at, end); at++) *digits = *digits * 10 + (uint64_t)(*at - '0');
  return at;
}

// A number of few digits and no exponent is one division of doubles that are exact. Returns NULL for all others.
static const char *read_short(const char *at, const char *end, double *number) {
  bool negative = at < end && *at == '-';
  const char *first = at + negative;
  uint64_t digits = 0;
  const char *stop = take_some(first, end, &digits);
  if (stop == first || (*first == '0' && stop - first > 1)) return NULL;
  ptrdiff_t count = stop - first, decimals = 0;
  if (stop < end && *stop == '.') {
    const char *point = stop;
    stop = take_some(point + 1, end, &digits);
    decimals = stop - point - 1;
    if (decimals == 0) return NULL;
  }
  if (count + decimals > EXACT_DIGITS || (stop < end && (*stop == 'e' || *stop == 'E'))) return NULL;
  double size = (double)digits / powers_of_ten[decimals];
  *number = negative ? -size : size;
  return stop;
}

const char *spinney_number_read(const char *at, const char *end, double *number, const char **problem) {
  *problem = NULL;
  const char *stop = read_short(at, end, number);
  if (stop) return stop;
  scanned parts = {0};
  stop = scan(at, end, &parts, problem);
  if (*problem) return stop;
  double size = value(&parts, at, stop);
  if (size > DBL_MAX) {
    *problem = "the number is too large for a double";
    return at;
  }
  *number = parts.negative ? -size : size;
  return stop;
}
