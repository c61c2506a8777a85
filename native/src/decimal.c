#include "decimal.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

// Where two doubles meet there is a number of at most 767 significant digits; whatever follows can only say on which
// side of it we are, and a single 1 says that as well.
enum { MAX_DIGITS = 800, MIN_POINT = -330, MAX_POINT = 310, LIMBS = 96 };

// A whole number, least significant limb first, no zeros at the top. 10^800 and 5^1131 take 84 limbs.
typedef struct whole {
  size_t count;
  uint32_t limbs[LIMBS];
} whole;

static void multiply_add(whole *n, uint32_t factor, uint32_t addend) {
  uint64_t carry = addend;
  for (size_t i = 0; i < n->count; i++, carry >>= 32) {
    carry += (uint64_t)n->limbs[i] * factor;
    n->limbs[i] = (uint32_t)carry;
  }
  if (carry) n->limbs[n->count++] = (uint32_t)carry;
}

static void multiply_power_of_five(whole *n, int64_t power) {
  static const uint32_t five_to_13 = 1220703125;
  for (; power >= 13; power -= 13) multiply_add(n, five_to_13, 0);
  for (; power > 0; power--) multiply_add(n, 5, 0);
}

static void shift_left(whole *n, size_t bits) {
  size_t limbs = bits / 32;
  memmove(n->limbs + limbs, n->limbs, n->count * sizeof n->limbs[0]);
  memset(n->limbs, 0, limbs * sizeof n->limbs[0]);
  n->count += limbs;
  if (bits % 32) multiply_add(n, UINT32_C(1) << bits % 32, 0);
}

static size_t bit_length(const whole *n) {
  size_t bits = 32 * (n->count - 1);
  for (uint32_t top = n->limbs[n->count - 1]; top; top >>= 1) bits++;
  return bits;
}

static bool at_least(const whole *a, const whole *b) {
  if (a->count != b->count) return a->count > b->count;
  for (size_t i = a->count; i-- > 0;) {
    if (a->limbs[i] != b->limbs[i]) return a->limbs[i] > b->limbs[i];
  }
  return true;
}

// a -= b, where a >= b.
static void subtract(whole *a, const whole *b) {
  uint64_t borrow = 0;
  for (size_t i = 0; i < a->count; i++) {
    uint64_t take = borrow + (i < b->count ? b->limbs[i] : 0);
    borrow = a->limbs[i] < take;
    a->limbs[i] = (uint32_t)(a->limbs[i] - take);
  }
  while (a->count && a->limbs[a->count - 1] == 0) a->count--;
}

// The first 64 bits of n / d, d > 0, bit by bit. Both are changed.
static spinney_binary divide(whole *n, whole *d) {
  int64_t shift = (int64_t)bit_length(n) - (int64_t)bit_length(d);
  if (shift > 0) shift_left(d, (size_t)shift);
  else shift_left(n, (size_t)-shift);
  spinney_binary quotient = {0, false, shift};
  if (!at_least(n, d)) {
    shift_left(n, 1);
    quotient.exponent--;
  }
  for (int bit = 0; bit < 64; bit++) {
    bool fits = at_least(n, d);
    if (fits) subtract(n, d);
    quotient.mantissa = quotient.mantissa << 1 | fits;
    if (n->count) multiply_add(n, 2, 0);
  }
  quotient.more = n->count > 0;
  quotient.exponent -= 63;
  return quotient;
}

// Reads up to MAX_DIGITS significant digits, returns how many; one more, a 1, stands for all that follow.
static int64_t read_digits(const char *at, const char *end, whole *n) {
  int64_t count = 0;
  for (; at < end && *at != 'e' && *at != 'E'; at++) {
    if (*at < '0' || *at > '9' || (*at == '0' && count == 0)) continue;
    if (count < MAX_DIGITS) {
      multiply_add(n, 10, (uint32_t)(*at - '0'));
      count++;
    } else if (*at != '0') {
      multiply_add(n, 10, 1);
      return count + 1;
    }
  }
  return count;
}

double spinney_decimal_value(const char *at, const char *end, int64_t point) {
  if (point > MAX_POINT) return HUGE_VAL;
  if (point < MIN_POINT) return 0.0;
  whole numerator = {.count = 0}, denominator = {.count = 1, .limbs = {1}};
  int64_t exponent = point - read_digits(at, end, &numerator);
  multiply_power_of_five(exponent > 0 ? &numerator : &denominator, exponent > 0 ? exponent : -exponent);
  spinney_binary quotient = divide(&numerator, &denominator);
  quotient.exponent += exponent;
  return spinney_binary_round(quotient);
}

double spinney_binary_round(spinney_binary value) {
  int64_t power = value.exponent + 63;  // of the highest bit
  if (power > 1023) return HUGE_VAL;
  if (power < -1075) return 0.0;
  int drop = power >= -1022 ? 11 : (int)(11 - 1022 - power);  // 11 of 64 bits; more for a subnormal
  uint64_t kept = drop < 64 ? value.mantissa >> drop : 0;
  uint64_t half = UINT64_C(1) << (drop - 1), rest = value.mantissa & (half | (half - 1));
  kept += rest > half || (rest == half && (value.more || kept & 1));
  // A carry out of the fraction is one more in the exponent, as it should be; from the greatest double, infinity.
  uint64_t bits = power >= -1022 ? ((uint64_t)(power + 1022) << 52) + kept : kept;
  double number;
  memcpy(&number, &bits, sizeof number);
  return number;
}
