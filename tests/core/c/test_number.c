// Decimal text to double: the nearest, ties to even, and errors where they are.

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "number.h"

static const char *read_problem;
static size_t read_stop;

static double read(const char *text) {
  double number = -1.0;
  read_stop = (size_t)(spinney_number_read(text, text + strlen(text), &number, &read_problem) - text);
  return number;
}

static bool reads(const char *text, double expected) {
  double number = read(text);
  return !read_problem && read_stop == strlen(text) && memcmp(&number, &expected, sizeof number) == 0;
}

static bool refuses(const char *text, size_t position, const char *message) {
  read(text);
  return read_problem && read_stop == position && strstr(read_problem, message);
}

static void numbers_that_one_operation_rounds(void) {
  CHECK(reads("0", 0.0));
  CHECK(reads("-0", -0.0));
  CHECK(reads("-0.0e5", -0.0));
  CHECK(reads("12", 12.0));
  CHECK(reads("-45.815", -45.815));
  CHECK(reads("1E+3", 1000.0));
  CHECK(reads("9007199254740991e22", 9007199254740991e22));
}

static void numbers_of_up_to_nineteen_digits_in_128_bits(void) {
  CHECK(reads("15.981919212345678", 15.981919212345678));
  CHECK(reads("9007199254740993", 9007199254740992.0));   // a tie goes to even
  CHECK(reads("9007199254740995", 9007199254740996.0));   // up, too
  CHECK(reads("9223372036854775807", 0x1p63));
  CHECK(reads("0.000000001234567890123456789e-0", 1.234567890123456789e-9));
  CHECK(reads("9999999999999999999e27", 9999999999999999999e27));
  CHECK(reads("9999999999999999999e-27", 9999999999999999999e-27));
}

static void numbers_of_any_length(void) {
  CHECK(reads("1.7976931348623157e308", DBL_MAX));
  CHECK(reads("2.2250738585072011e-308", 0x0.fffffffffffffp-1022));
  CHECK(reads("2.2250738585072014e-308", DBL_MIN));
  CHECK(reads("4.9406564584124654e-324", 0x1p-1074));
  CHECK(reads("9007199254740993.0000000000000000000000000000000000000001", 9007199254740994.0));
  CHECK(reads("0.0000000000000000000000000000000000000000000000000000000000001e61", 1.0));
}

static void numbers_too_small_are_zero(void) {
  CHECK(reads("2.4703282292062327e-324", 0.0));  // just below half of the least
  CHECK(reads("2.4703282292062328e-324", 0x1p-1074));
  CHECK(reads("1e-400", 0.0));
  CHECK(reads("-1e-99999999999999999999", -0.0));
  CHECK(reads("0e99999999999999999999", 0.0));
}

static void numbers_too_large_are_refused(void) {
  CHECK(refuses("1e309", 0, "too large"));
  CHECK(refuses("-1.7976931348623159e308", 0, "too large"));
  CHECK(refuses("1e99999999999999999999", 0, "too large"));
}

static void half_way_is_seen_a_thousand_digits_away(void) {
  char text[1100] = "9007199254740993.";
  memset(text + strlen(text), '0', 1000);
  CHECK(reads(text, 9007199254740992.0));
  text[1016] = '1';
  CHECK(reads(text, 9007199254740994.0));
}

static void what_is_no_number_is_refused_where_it_shows(void) {
  CHECK(refuses("-", 1, "expected a digit"));
  CHECK(refuses("+1", 0, "expected a digit"));
  CHECK(refuses(".5", 0, "expected a digit"));
  CHECK(refuses("1.", 2, "after the decimal point"));
  CHECK(refuses("1.e5", 2, "after the decimal point"));
  CHECK(refuses("1e", 2, "in the exponent"));
  CHECK(refuses("1e+", 3, "in the exponent"));
  CHECK(refuses("00", 1, "leading zeros"));
  CHECK(refuses("-01", 2, "leading zeros"));
}

static void what_follows_is_left(void) {
  CHECK(read("12,34") == 12.0 && !read_problem && read_stop == 2);
  CHECK(read("0x10") == 0.0 && !read_problem && read_stop == 1);
}

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

static double random_double(void) {
  for (;;) {
    uint64_t bits = next_random();
    double number;
    memcpy(&number, &bits, sizeof number);
    if (isfinite(number)) return number;
  }
}

// The test's locale is "C", so the C library may be asked here.
static void the_c_library_agrees(void) {
  char text[64];
  for (int i = 0; i < 20000; i++) {
    snprintf(text, sizeof text, "%.*e", (int)(next_random() % 25), random_double());
    if (isfinite(strtod(text, NULL))) CHECK(reads(text, strtod(text, NULL)));
    double place = (double)(int64_t)next_random() / 0x1p63 * 180.0;
    snprintf(text, sizeof text, "%.*f", (int)(next_random() % 20), place);
    CHECK(reads(text, strtod(text, NULL)));
  }
}

int main(void) {
  numbers_that_one_operation_rounds();
  numbers_of_up_to_nineteen_digits_in_128_bits();
  numbers_of_any_length();
  numbers_too_small_are_zero();
  numbers_too_large_are_refused();
  half_way_is_seen_a_thousand_digits_away();
  what_is_no_number_is_refused_where_it_shows();
  what_follows_is_left();
  the_c_library_agrees();
  return CHECK_RESULT;
}
