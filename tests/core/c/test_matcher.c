// test_matcher.c - the matcher against a model that tries every filter.

#include <stdlib.h>

#include "filter_model.h"

// ---- Any filter, any order, any instruction set ----------------------------------------------------------------

static void change_something(model *m, uint64_t *state) {
  uint32_t id = chance(state, m->n);
  if (m->held[id]) {
    model_remove(m, id);
    return;
  }
  uint32_t other = chance(state, m->n);  // often equal to another's, to be shared
  model_filter filter = m->held[other] && !chance(state, 3) ? m->filters[other] : random_filter(state);
  CHECK(model_add(m, id, &filter) == SPINNEY_OK);
}

static void use_any(model *m, uint64_t *state) {
  spinney_simd simd = (spinney_simd)chance(state, 5);
  spinney_error error;
  if (spinney_matcher_use(m->matcher, simd, &error)) CHECK(error.status == SPINNEY_BAD_ID);
}

static void test_random_filters_in_random_order(void) {
  uint64_t state = 88172645463325252u;
  model m;
  CHECK(model_open(&m, 700, NULL));
  for (int round = 0; round < 300; round++) {
    for (int i = 0; i < 30; i++) change_something(&m, &state);
    use_any(&m, &state);
    for (int i = 0; i < 4; i++) {
      model_event event = random_event(&state, m.attributes);
      CHECK(answer_is_right(&m, &event));
    }
  }
  for (uint32_t id = 0; id < m.n; id++)
    if (m.held[id]) model_remove(&m, id);
  spinney_stats stats;
  spinney_matcher_stats(m.matcher, &stats);
  CHECK(stats.ids == 0 && stats.entries == 0 && stats.scanned == 0);
  model_close(&m);
}

// ---- Many of one kind, so that trees grow, are split, built anew and shrink ------------------------------------

typedef enum order { ASCENDING, DESCENDING, SHUFFLED } order;

// A grid finer than floats are, far from zero.
static double grid(uint32_t i) { return 45000000.0 + i / 64.0; }

// Up to three ranges with two ends, wide or narrow; which shares a value with few others.
static model_filter ranges(uint64_t *state, int n, uint32_t i, bool wide) {
  model_filter f = {.n_boxes = 1};
  for (int d = 0; d < n; d++) {
    uint32_t at = d ? chance(state, 4096) : i, width = chance(state, wide ? 4096 : 32);
    f.predicates[0][d] = (model_predicate){.kind = 1, .attribute = (uint8_t)d, .low = grid(at), .high = grid(at + width)};
  }
  f.n_predicates[0] = n;
  return f;
}

// A point in one of the filters that are held, or anywhere.
static model_event point(uint64_t *state, const model *m) {
  model_event event = {0};
  const model_filter *near = &m->filters[chance(state, m->n)];
  for (int i = 0; i < 3; i++) {
    double number = grid(chance(state, 4096));
    if (i < near->n_predicates[0]) number = chance(state, 2) ? near->predicates[0][i].low : near->predicates[0][i].high;
    event.values[i] = (spinney_value){.attribute = m->attributes[i], .type = SPINNEY_NUMBER, .number = number};
  }
  for (int i = 3; i < MODEL_ATTRIBUTES; i++) event.values[i].attribute = m->attributes[i];
  return event;
}

static uint32_t nth(order o, uint32_t i, uint32_t n) {
  if (o == SHUFFLED) return (uint32_t)((uint64_t)i * 2654435761u % n);  // n has no factor in common with it
  return o == ASCENDING ? i : n - 1 - i;
}

static void check_points(model *m, uint64_t *state, int n) {
  for (int i = 0; i < n; i++) {
    model_event event = point(state, m);
    CHECK(answer_is_right(m, &event));
  }
}

static void test_many(int dimensions, bool wide, order in, order out) {
  uint64_t state = 1 + (uint64_t)dimensions;
  model m;
  CHECK(model_open(&m, 8000, NULL));
  for (uint32_t i = 0; i < m.n; i++) {
    uint32_t id = nth(in, i, m.n);
    model_filter filter = ranges(&state, dimensions, id / 2, wide);
    CHECK(model_add(&m, id, &filter) == SPINNEY_OK);
    if (i % 1000 == 999) check_points(&m, &state, 20);
  }
  for (uint32_t i = 0; i < m.n; i++) {
    model_remove(&m, nth(out, i, m.n));
    if (i % 1000 == 500) check_points(&m, &state, 20);
  }
  model_close(&m);
}

// What no number tells apart stays together, and is found nevertheless.
static void test_equal_ranges_with_different_programs(void) {
  uint64_t state = 7;
  model m;
  CHECK(model_open(&m, 500, NULL));
  model_filter filter = ranges(&state, 2, 5, true);
  filter.has_program = true;
  for (uint32_t id = 0; id < m.n; id++) {
    filter.limit = grid(id);
    CHECK(model_add(&m, id, &filter) == SPINNEY_OK);
  }
  check_points(&m, &state, 50);
  for (uint32_t id = 0; id < m.n; id += 2) model_remove(&m, id);
  check_points(&m, &state, 50);
  model_close(&m);
}

static void test_one_filter_with_many_ids(void) {
  uint64_t state = 9;
  model m;
  CHECK(model_open(&m, 3000, NULL));
  model_filter filter = ranges(&state, 2, 0, true), line = ranges(&state, 1, 0, true);
  for (uint32_t id = 0; id < m.n; id++) CHECK(model_add(&m, nth(SHUFFLED, id, m.n), id % 2 ? &filter : &line) == 0);
  spinney_stats stats;
  spinney_matcher_stats(m.matcher, &stats);
  CHECK(stats.ids == 3000 && stats.entries == 2);
  check_points(&m, &state, 20);
  for (uint32_t id = 0; id < m.n; id++) {
    model_remove(&m, id);
    if (id % 700 == 0) check_points(&m, &state, 4);
  }
  model_close(&m);
}

static void test_stats_tell_scanned_from_indexed(void) {
  model m;
  spinney_stats stats;
  CHECK(model_open(&m, 10, NULL));
  model_filter always = {.n_boxes = 3, .has_program = true, .limit = 1};
  model_filter ranged = {.n_boxes = 1, .n_predicates = {1}, .predicates = {{{.kind = 1, .low = 1, .high = 2}}}};
  CHECK(model_add(&m, 0, &always) == SPINNEY_OK && model_add(&m, 1, &always) == SPINNEY_OK);
  CHECK(model_add(&m, 2, &ranged) == SPINNEY_OK);
  spinney_matcher_stats(m.matcher, &stats);
  CHECK(stats.ids == 3 && stats.entries == 2 && stats.scanned == 1 && stats.indexed == 1);
  CHECK(stats.attributes == MODEL_ATTRIBUTES && stats.bytes > 0);
  model_close(&m);
}

// ---- What is refused -------------------------------------------------------------------------------------------

static void test_ids(void) {
  uint64_t state = 11;
  model m;
  spinney_error error;
  program_bytes bytes;
  CHECK(model_open(&m, 10, NULL));
  model_filter filter = random_filter(&state);
  encode(&filter, &bytes);
  CHECK(model_add(&m, 3, &filter) == SPINNEY_OK);
  CHECK(spinney_add(m.matcher, 3, bytes.bytes, bytes.length, &error) == SPINNEY_BAD_ID);
  CHECK(spinney_add(m.matcher, UINT32_MAX, bytes.bytes, bytes.length, &error) == SPINNEY_BAD_ID);
  CHECK(spinney_remove(m.matcher, 4, &error) == SPINNEY_BAD_ID);
  CHECK(spinney_remove(m.matcher, UINT32_MAX, &error) == SPINNEY_BAD_ID);
  model_close(&m);
}

static void test_values(void) {
  model m;
  spinney_error error;
  const uint32_t *ids;
  size_t n;
  CHECK(model_open(&m, 10, NULL));
  spinney_value bad[] = {{.attribute = 999, .type = SPINNEY_NUMBER},
                         {.attribute = m.attributes[0], .type = 9},
                         {.attribute = m.attributes[0], .type = SPINNEY_NUMBER, .number = (double)INFINITY},
                         {.attribute = m.attributes[0], .type = SPINNEY_NUMBER, .number = (double)NAN}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK(spinney_match(m.reader, &bad[i], 1, &ids, &n, &error) == SPINNEY_BAD_EVENT && error.position == 0);
  model_close(&m);
}

static void test_the_last_of_two_values_counts(void) {
  model m;
  const uint32_t *ids;
  size_t n;
  CHECK(model_open(&m, 10, NULL));
  model_filter filter = {.n_boxes = 1, .n_predicates = {1}, .predicates = {{{.kind = 1, .low = 1, .high = 2}}}};
  CHECK(model_add(&m, 0, &filter) == SPINNEY_OK);
  spinney_value twice[] = {{.attribute = m.attributes[0], .type = SPINNEY_NUMBER, .number = 5},
                           {.attribute = m.attributes[0], .type = SPINNEY_NUMBER, .number = 1.5}};
  CHECK(spinney_match(m.reader, twice, 2, &ids, &n, NULL) == SPINNEY_OK && n == 1);
  twice[1].type = SPINNEY_NULL;
  CHECK(spinney_match(m.reader, twice, 2, &ids, &n, NULL) == SPINNEY_OK && n == 0);
  model_close(&m);
}

static void refuse(spinney_matcher *matcher, const char *bytes, size_t length, size_t position) {
  spinney_error error;
  spinney_stats stats;
  CHECK(spinney_add(matcher, 0, (const uint8_t *)bytes, length, &error) == SPINNEY_BAD_FILTER);
  CHECK(error.position == position);
  spinney_matcher_stats(matcher, &stats);
  CHECK(stats.ids == 0 && stats.entries == 0 && stats.attributes == 0);
}

#define REFUSE(matcher, bytes, position) refuse(matcher, bytes, sizeof(bytes) - 1, position)

static void test_filters_that_are_none(void) {
  spinney_matcher *matcher;
  CHECK(spinney_matcher_new(NULL, &matcher, NULL) == SPINNEY_OK);
  REFUSE(matcher, "", 0);
  REFUSE(matcher, "SG\1\0\0\0\0\0", 0);
  REFUSE(matcher, "SF\2\0\0\0\0\0", 2);
  REFUSE(matcher, "SF\1\2\0\0\0\0", 3);
  REFUSE(matcher, "SF\1\0\1\0\1\0", 8);                                // the name is missing
  REFUSE(matcher, "SF\1\0\2\0\1\0a\1\0a\0\0", 9);                      // named twice
  REFUSE(matcher, "SF\1\0\0\0\1\0", 8);                                // the box is missing
  REFUSE(matcher, "SF\1\0\0\0\0\0x", 8);                               // something follows
  REFUSE(matcher, "SF\1\0\1\0\1\0a\1\0\1\6\0\0", 12);                  // no such kind
  REFUSE(matcher, "SF\1\0\1\0\1\0a\1\0\1\5\1\0", 13);                  // no such attribute
  REFUSE(matcher, "SF\1\0\1\0\1\0a\1\0\1\4\0\0\2", 15);                // no boolean
  REFUSE(matcher, "SF\1\0\1\0\1\0a\1\0\2\5\0\0\5\0\0", 15);            // twice of a kind
  REFUSE(matcher, "SF\1\0\1\0\1\0a\1\0\1\2\0\0\377\377\377\377x", 20);  // a string beyond the end
  REFUSE(matcher, "SF\1\0\1\0\1\0a\1\0\1\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\370\177", 23);  // NaN
  REFUSE(matcher, "SF\1\1\0\0\0\0\0\0\0\0", 12);                       // an empty program leaves no value
  spinney_matcher_free(matcher);
}

// Every beginning of a filter is refused, at its end.
static void test_filters_that_end_too_early(void) {
  uint64_t state = 21;
  spinney_matcher *matcher;
  CHECK(spinney_matcher_new(NULL, &matcher, NULL) == SPINNEY_OK);
  for (int i = 0; i < 20; i++) {
    model_filter filter = random_filter(&state);
    program_bytes bytes;
    encode(&filter, &bytes);
    for (size_t length = 0; length < bytes.length; length++) refuse(matcher, (const char *)bytes.bytes, length, length);
  }
  spinney_matcher_free(matcher);
}

int main(void) {
  test_random_filters_in_random_order();
  test_many(1, true, SHUFFLED, SHUFFLED);
  test_many(1, false, ASCENDING, ASCENDING);
  test_many(1, false, DESCENDING, SHUFFLED);
  test_many(2, false, SHUFFLED, SHUFFLED);
  test_many(2, true, ASCENDING, DESCENDING);
  test_many(3, false, DESCENDING, ASCENDING);
  test_equal_ranges_with_different_programs();
  test_one_filter_with_many_ids();
  test_stats_tell_scanned_from_indexed();
  test_ids();
  test_values();
  test_the_last_of_two_values_counts();
  test_filters_that_are_none();
  test_filters_that_end_too_early();
  return CHECK_RESULT;
}
