// The program machine, instruction by instruction, and what the check refuses.

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "failing_allocator.h"
#include "internal.h"
#include "memory.h"
#include "program.h"
#include "program_bytes.h"

enum { NUMBER_ATTRIBUTE, STRING_ATTRIBUTE, BOOLEAN_ATTRIBUTE, MISSING_ATTRIBUTE, N_ATTRIBUTES };

static program_bytes code;
static spinney_error error;
static size_t scratch_size;  // after the last run

static void start(void) { code.length = 0; }

static bool passes(void) {
  return spinney_program_check(code.bytes, code.length, N_ATTRIBUTES, 100, &error) == SPINNEY_OK;
}

static bool refused(size_t position, const char *message) {
  return !passes() && error.status == SPINNEY_BAD_FILTER && error.position == 100 + position &&
         strstr(error.message, message);
}

// The verdict over an event with a number 7, the string "Straße 7", true, and one attribute that is null.
static int run(void) {
  static const uint32_t attribute_map[N_ATTRIBUTES] = {3, 2, 1, 0};
  spinney_value slots[N_ATTRIBUTES] = {
      [3] = {.attribute = 3, .type = SPINNEY_NUMBER, .number = 7.0},
      [2] = {.attribute = 2, .type = SPINNEY_STRING, .text = "Stra\xC3\x9F" "e 7", .length = 9},
      [1] = {.attribute = 1, .type = SPINNEY_BOOLEAN, .number = 1.0},
  };
  spinney_event event = {.slots = slots, .capacity = N_ATTRIBUTES};
  spinney_memory memory;
  spinney_memory_init(&memory, NULL);
  spinney_scratch scratch = {.memory = &memory};
  if (!CHECK(passes())) return -3;
  spinney_verdict verdict = spinney_program_run(code.bytes, code.length, attribute_map, &event, &scratch);
  scratch_size = scratch.size;
  spinney_scratch_free(&scratch);
  return verdict;
}

// ---- values

static int compare_numbers(double a, uint8_t opcode, double b) {
  start();
  put_number(&code, a);
  put_number(&code, b);
  put_u8(&code, opcode);
  return run();
}

static int compare_strings(const char *a, uint8_t opcode, const char *b) {
  start();
  put_string(&code, a);
  put_string(&code, b);
  put_u8(&code, opcode);
  return run();
}

static void attributes_are_found_through_the_map(void) {
  start();
  put_attribute(&code, NUMBER_ATTRIBUTE);
  put_number(&code, 7.0);
  put_u8(&code, OP_EQUAL);
  CHECK(run() == 1);
  start();
  put_attribute(&code, STRING_ATTRIBUTE);
  put_string(&code, "Stra\xC3\x9F" "e 7");
  put_u8(&code, OP_EQUAL);
  CHECK(run() == 1);
  start();
  put_attribute(&code, BOOLEAN_ATTRIBUTE);
  CHECK(run() == 1);
  start();
  put_attribute(&code, MISSING_ATTRIBUTE);
  CHECK(run() == -1);
}

static void numbers_compare_by_size(void) {
  CHECK(compare_numbers(1.0, OP_EQUAL, 1.0) == 1);
  CHECK(compare_numbers(0.0, OP_EQUAL, -0.0) == 1);
  CHECK(compare_numbers(1.0, OP_NOT_EQUAL, 1.0) == 0);
  CHECK(compare_numbers(1.0, OP_LESS, 2.0) == 1);
  CHECK(compare_numbers(2.0, OP_GREATER, 2.0) == 0);
  CHECK(compare_numbers(2.0, OP_AT_MOST, 2.0) == 1);
  CHECK(compare_numbers(1.0, OP_AT_LEAST, 2.0) == 0);
}

static void strings_compare_by_code_point(void) {
  CHECK(compare_strings("a", OP_LESS, "ab") == 1);
  CHECK(compare_strings("\xEF\xBF\xBF", OP_LESS, "\xF0\x9F\x98\x80") == 1);  // U+FFFF before U+1F600, not so in UTF-16
  CHECK(compare_strings("", OP_EQUAL, "") == 1);
  CHECK(compare_strings("b", OP_AT_MOST, "ab") == 0);
}

static void types_that_differ_and_null_are_unknown(void) {
  start();
  put_number(&code, 1.0);
  put_string(&code, "1");
  put_u8(&code, OP_NOT_EQUAL);
  CHECK(run() == -1);
  start();
  put_u8(&code, OP_NULL);
  put_u8(&code, OP_NULL);
  put_u8(&code, OP_EQUAL);
  CHECK(run() == -1);
  start();
  put_boolean(&code, 0);
  put_boolean(&code, 1);
  put_u8(&code, OP_LESS);
  CHECK(run() == 1);
}

static void null_is_null(void) {
  start();
  put_attribute(&code, MISSING_ATTRIBUTE);
  put_u8(&code, OP_IS_NULL);
  CHECK(run() == 1);
  start();
  put_attribute(&code, STRING_ATTRIBUTE);
  put_u8(&code, OP_IS_NULL);
  CHECK(run() == 0);
}

// ---- arithmetic

static int computes(double a, uint8_t opcode, double b, double expected) {
  start();
  put_number(&code, a);
  put_number(&code, b);
  put_u8(&code, opcode);
  put_number(&code, expected);
  put_u8(&code, OP_EQUAL);
  return run();
}

static void arithmetic_is_ieee(void) {
  CHECK(computes(0.1, OP_ADD, 0.2, 0.30000000000000004) == 1);
  CHECK(computes(1.0, OP_SUBTRACT, 3.0, -2.0) == 1);
  CHECK(computes(1.5, OP_MULTIPLY, 4.0, 6.0) == 1);
  CHECK(computes(1.0, OP_DIVIDE, 3.0, 1.0 / 3.0) == 1);
  CHECK(computes(-7.0, OP_REMAINDER, 3.0, -1.0) == 1);
  CHECK(computes(-7.0, OP_DIVIDE_WHOLE, 2.0, -3.0) == 1);
}

static void powers_of_whole_exponents_are_products(void) {
  CHECK(computes(0.0, OP_POWER, 0.0, 1.0) == 1);
  CHECK(computes(-2.0, OP_POWER, 3.0, -8.0) == 1);
  CHECK(computes(2.0, OP_POWER, -2.0, 0.25) == 1);
  CHECK(computes(1.1, OP_POWER, 3.0, 1.1 * (1.1 * 1.1)) == 1);
  CHECK(computes(2.0, OP_POWER, 1023.0, 0x1p1023) == 1);
  CHECK(computes(2.0, OP_POWER, 0.5, sqrt(2.0)) == 1);
  CHECK(computes(8.0, OP_POWER, 1.0 / 3.0, pow(8.0, 1.0 / 3.0)) == 1);
  CHECK(computes(1.0, OP_POWER, 1e300, 1.0) == 1);
}

static void results_that_are_not_finite_are_null(void) {
  CHECK(computes(1.0, OP_DIVIDE, 0.0, 0.0) == -1);
  CHECK(computes(1e308, OP_ADD, 1e308, 0.0) == -1);
  CHECK(computes(1.0, OP_REMAINDER, 0.0, 0.0) == -1);
  CHECK(computes(0.0, OP_POWER, -1.0, 0.0) == -1);
  CHECK(computes(-1.0, OP_POWER, 0.5, 0.0) == -1);
  CHECK(computes(2.0, OP_POWER, 1024.0, 0.0) == -1);
}

static int is_null(uint8_t opcode) {
  put_u8(&code, opcode);
  put_u8(&code, OP_IS_NULL);
  return run();
}

static void computing_with_anything_but_numbers_is_null(void) {
  start();
  put_string(&code, "1");
  put_number(&code, 1.0);
  CHECK(is_null(OP_ADD) == 1);
  start();
  put_boolean(&code, 1);
  CHECK(is_null(OP_ABS) == 1);
  start();
  for (int i = 0; i < 3; i++) put_number(&code, 1.0);
  put_u8(&code, OP_NULL);
  CHECK(is_null(OP_DISTANCE) == 1);
  start();
  put_number(&code, 1.0);
  CHECK(is_null(OP_CASEFOLD) == 1);
}

static void abs_and_distance_compute(void) {
  start();
  put_number(&code, -3.0);
  put_u8(&code, OP_ABS);
  put_number(&code, 3.0);
  put_u8(&code, OP_EQUAL);
  CHECK(run() == 1);
  start();
  for (int i = 0; i < 3; i++) put_number(&code, 0.0);
  put_number(&code, 180.0);
  put_u8(&code, OP_DISTANCE);
  put_number(&code, 6371008.8 * 3.141592653589793);
  put_u8(&code, OP_EQUAL);
  CHECK(run() == 1);
}

// ---- strings

static int folds(const char *text, const char *expected) {
  start();
  put_string(&code, text);
  put_u8(&code, OP_CASEFOLD);
  put_string(&code, expected);
  put_u8(&code, OP_EQUAL);
  return run();
}

static void case_folds_fully(void) {
  CHECK(folds("", "") == 1);
  CHECK(folds("NO2", "no2") == 1);
  CHECK(folds("STRA\xC3\x9F" "E", "strasse") == 1);
  CHECK(folds("\xCE\x90", "\xCE\xB9\xCC\x88\xCC\x81") == 1);  // two bytes become six
  CHECK(folds("\xFF" "A\xE2\x82", "\xFF" "a\xE2\x82") == 1);   // no UTF-8: left as it is
}

static void folded_strings_live_side_by_side(void) {
  start();
  put_attribute(&code, STRING_ATTRIBUTE);
  put_u8(&code, OP_CASEFOLD);
  put_string(&code, "STRASSE 7");
  put_u8(&code, OP_CASEFOLD);
  put_u8(&code, OP_CASEFOLD);
  put_u8(&code, OP_EQUAL);
  CHECK(run() == 1);
}

static void folded_strings_make_room_when_they_are_done(void) {
  enum { TIMES = 500 };
  start();
  put_boolean(&code, 0);
  for (int i = 0; i < TIMES; i++) {
    put_attribute(&code, STRING_ATTRIBUTE);
    put_u8(&code, OP_CASEFOLD);
    put_u8(&code, OP_IS_NULL);
    put_u8(&code, OP_OR);
  }
  CHECK(run() == 0);
  CHECK(scratch_size < 1000);
}

static int is_like(const char *text, const char *pattern) {
  start();
  put_string(&code, text);
  put_like(&code, pattern);
  return run();
}

static void like_takes_runs_single_code_points_and_escapes(void) {
  CHECK(is_like("", "") == 1);
  CHECK(is_like("", "%") == 1);
  CHECK(is_like("", "_") == 0);
  CHECK(is_like("air/no2", "air/%") == 1);
  CHECK(is_like("air/no2", "%no_") == 1);
  CHECK(is_like("air/no2", "air") == 0);
  CHECK(is_like("abcabd", "%abd") == 1);
  CHECK(is_like("aXbXc", "a%b%c%") == 1);
  CHECK(is_like("\xF0\x9F\x98\x80", "_") == 1);
  CHECK(is_like("\xF0\x9F\x98\x80", "__") == 0);
  CHECK(is_like("100%", "100\\%") == 1);
  CHECK(is_like("1000", "100\\%") == 0);
  CHECK(is_like("a\\b", "a\\b") == 1);
  CHECK(is_like("a\\b", "a\\\\b") == 1);
  CHECK(is_like("a\\", "a\\") == 1);
}

static void like_of_anything_but_a_string_is_unknown(void) {
  start();
  put_number(&code, 1.0);
  put_like(&code, "%");
  CHECK(run() == -1);
}

static int in_list(void) {
  put_u8(&code, OP_IN);
  put_u16(&code, 3);
  put_number(&code, 1.0);
  put_string(&code, "x");
  put_boolean(&code, 1);
  return run();
}

static void in_is_equality_joined_by_or(void) {
  start();
  put_string(&code, "x");
  CHECK(in_list() == 1);
  start();
  put_boolean(&code, 1);
  CHECK(in_list() == 1);
  start();
  put_number(&code, 2.0);
  CHECK(in_list() == -1);  // the comparison with a string is unknown
  start();
  put_number(&code, 2.0);
  put_u8(&code, OP_IN);
  put_u16(&code, 1);
  put_number(&code, 1.0);
  CHECK(run() == 0);
}

// ---- logic

static void put_verdict(int verdict) {
  if (verdict < 0) put_u8(&code, OP_NULL);
  else put_boolean(&code, (uint8_t)verdict);
}

static int combines(int a, uint8_t opcode, int b) {
  start();
  put_verdict(a);
  put_verdict(b);
  put_u8(&code, opcode);
  return run();
}

static void logic_has_three_values(void) {
  static const int verdicts[] = {0, -1, 1};  // from the least to the greatest
  for (int a = 0; a < 3; a++) {
    for (int b = 0; b < 3; b++) {
      CHECK(combines(verdicts[a], OP_AND, verdicts[b]) == verdicts[a < b ? a : b]);
      CHECK(combines(verdicts[a], OP_OR, verdicts[b]) == verdicts[a > b ? a : b]);
    }
    start();
    put_verdict(verdicts[a]);
    put_u8(&code, OP_NOT);
    CHECK(run() == verdicts[2 - a]);
  }
}

// a UNLESS.. over (b AND)
static int jumps(int a, uint8_t jump, uint8_t opcode, int b) {
  start();
  put_verdict(a);
  put_u8(&code, jump);
  put_u32(&code, b < 0 ? 2 : 3);
  put_verdict(b);
  put_u8(&code, opcode);
  return run();
}

static void jumps_leave_what_decides(void) {
  CHECK(jumps(0, OP_UNLESS_FALSE, OP_OR, 1) == 0);  // taken: the OR is not run
  CHECK(jumps(1, OP_UNLESS_FALSE, OP_AND, 1) == 1);
  CHECK(jumps(-1, OP_UNLESS_FALSE, OP_AND, 0) == 0);
  CHECK(jumps(1, OP_UNLESS_TRUE, OP_AND, 0) == 1);
  CHECK(jumps(0, OP_UNLESS_TRUE, OP_OR, -1) == -1);
}

// ---- polygons

static void put_ring(double size) {
  const double xs[] = {0.0, size, size, 0.0, 0.0}, ys[] = {0.0, 0.0, size, size, 0.0};
  put_u32(&code, 5);
  for (int i = 0; i < 5; i++) {
    put_f64(&code, xs[i]);
    put_f64(&code, ys[i]);
  }
}

// A square of 4 with a hole of 2 in its corner, and a square of 1.
static int place(double x, double y, uint8_t mode) {
  start();
  put_number(&code, x);
  put_number(&code, y);
  put_u8(&code, OP_POLYGON);
  put_u8(&code, mode);
  put_u16(&code, 2);
  for (int polygon = 0; polygon < 2; polygon++) {
    double size = polygon == 0 ? 4.0 : 1.0;
    const double bounds[] = {0.0, 0.0, size, size};
    for (int i = 0; i < 4; i++) put_f64(&code, bounds[i]);
    put_u16(&code, polygon == 0 ? 2 : 1);
    put_ring(size);
    if (polygon == 0) put_ring(2.0);
  }
  return run();
}

static void polygons_have_an_inside_and_a_border(void) {
  CHECK(place(3.0, 3.0, 1) == 1);
  CHECK(place(1.5, 1.5, 0) == 0);  // in the hole
  CHECK(place(0.5, 0.5, 1) == 1);  // in the hole, but in the second polygon
  CHECK(place(4.0, 3.0, 0) == 1);
  CHECK(place(4.0, 3.0, 1) == 0);
  CHECK(place(2.0, 1.5, 0) == 1);  // on the border of the hole
  CHECK(place(5.0, 3.0, 0) == 0);
}

static void a_place_that_is_not_two_numbers_is_unknown(void) {
  start();
  put_u8(&code, OP_NULL);
  put_number(&code, 1.0);
  put_u8(&code, OP_POLYGON);
  put_u8(&code, 1);
  put_u16(&code, 0);
  CHECK(run() == -1);
}

// ---- what is refused

static void broken_operands_are_refused(void) {
  start();
  put_u8(&code, 0x99);
  CHECK(refused(0, "unknown instruction"));
  start();
  put_number(&code, INFINITY);
  CHECK(refused(1, "not finite"));
  start();
  put_boolean(&code, 2);
  CHECK(refused(1, "neither 0 nor 1"));
  start();
  put_attribute(&code, N_ATTRIBUTES);
  CHECK(refused(1, "no attribute"));
  start();
  put_u8(&code, OP_STRING);
  put_u32(&code, UINT32_MAX);
  CHECK(refused(1, "end within"));
  start();
  put_number(&code, 1.0);
  put_u8(&code, OP_IN);
  put_u16(&code, 1);
  put_u8(&code, OP_NULL);
  CHECK(refused(12, "expected a constant"));
}

static void every_cut_is_refused(void) {
  const size_t one_number = 9;  // is a program
  place(1.0, 1.0, 1);
  while (code.length > one_number + 1) {
    code.length--;
    CHECK(!passes());
  }
}

static void stacks_that_do_not_fit_are_refused(void) {
  start();
  CHECK(refused(0, "exactly one value"));
  put_boolean(&code, 1);
  put_boolean(&code, 1);
  CHECK(refused(4, "exactly one value"));
  start();
  put_boolean(&code, 1);
  put_u8(&code, OP_AND);
  CHECK(refused(2, "too few values"));
  start();
  for (int i = 0; i < SPINNEY_MAX_STACK; i++) put_u8(&code, OP_NULL);
  CHECK(refused(SPINNEY_MAX_STACK, "exactly one value"));
  put_u8(&code, OP_NULL);
  CHECK(refused(SPINNEY_MAX_STACK, "too high"));
}

static void put_jump(uint32_t distance) {
  put_u8(&code, OP_UNLESS_FALSE);
  put_u32(&code, distance);
}

static void jumps_that_do_not_land_are_refused(void) {
  start();
  put_boolean(&code, 1);
  put_jump(1);
  CHECK(refused(3, "out of the program"));
  start();
  put_boolean(&code, 1);
  put_jump(1);
  put_boolean(&code, 1);
  put_u8(&code, OP_AND);
  CHECK(refused(9, "into the instruction"));
  start();
  put_boolean(&code, 1);
  put_jump(2);
  put_boolean(&code, 1);
  put_u8(&code, OP_AND);
  CHECK(refused(9, "another stack"));
  start();
  put_boolean(&code, 1);
  put_jump(6);
  put_jump(2);
  put_u8(&code, OP_NOT);
  put_u8(&code, OP_NOT);
  CHECK(refused(8, "crosses"));
}

static void jumps_may_share_a_landing(void) {
  start();
  put_boolean(&code, 1);
  put_jump(6);
  put_jump(1);
  put_u8(&code, OP_NOT);
  CHECK(run() == 0);
}

// n jumps, each of which lands one NOT before the one before it, and n NOTs.
static void put_nested_jumps(uint32_t n) {
  start();
  put_boolean(&code, 1);
  for (uint32_t i = 1; i <= n; i++) put_jump(5 * (n - i) + n - i);
  for (uint32_t i = 0; i < n; i++) put_u8(&code, OP_NOT);
}

static void jumps_nest_only_so_deep(void) {
  put_nested_jumps(SPINNEY_MAX_STACK);
  CHECK(passes());
  put_nested_jumps(SPINNEY_MAX_STACK + 1);
  CHECK(refused(3 + 5 * SPINNEY_MAX_STACK, "too many jumps"));
}

static void without_memory_the_verdict_says_so(void) {
  failing_allocator failing = {.left = 0};
  spinney_allocator allocator = {failing_resize, &failing};
  spinney_memory memory;
  spinney_memory_init(&memory, &allocator);
  spinney_scratch scratch = {.memory = &memory};
  spinney_event event = {0};
  start();
  put_string(&code, "A");
  put_u8(&code, OP_CASEFOLD);
  CHECK(spinney_program_run(code.bytes, code.length, NULL, &event, &scratch) == SPINNEY_VERDICT_NO_MEMORY);
}

int main(void) {
  attributes_are_found_through_the_map();
  numbers_compare_by_size();
  strings_compare_by_code_point();
  types_that_differ_and_null_are_unknown();
  null_is_null();
  arithmetic_is_ieee();
  powers_of_whole_exponents_are_products();
  results_that_are_not_finite_are_null();
  computing_with_anything_but_numbers_is_null();
  abs_and_distance_compute();
  case_folds_fully();
  folded_strings_live_side_by_side();
  folded_strings_make_room_when_they_are_done();
  like_takes_runs_single_code_points_and_escapes();
  like_of_anything_but_a_string_is_unknown();
  in_is_equality_joined_by_or();
  logic_has_three_values();
  jumps_leave_what_decides();
  polygons_have_an_inside_and_a_border();
  a_place_that_is_not_two_numbers_is_unknown();
  broken_operands_are_refused();
  every_cut_is_refused();
  stacks_that_do_not_fit_are_refused();
  jumps_that_do_not_land_are_refused();
  jumps_may_share_a_landing();
  jumps_nest_only_so_deep();
  without_memory_the_verdict_says_so();
  return CHECK_RESULT;
}
