// test_matcher_memory.c - every request for memory fails once: the call fails, nothing changes, and the next one works.

#include <stdlib.h>

#include "failing_allocator.h"
#include "filter_model.h"

typedef struct sweep {
  failing_allocator failing;
  spinney_allocator allocator;
  model model;
  uint64_t state;
  long failures;
} sweep;

static void open_sweep(sweep *s, uint32_t n, uint64_t seed) {
  *s = (sweep){.failing = {-1}, .state = seed};
  s->allocator = (spinney_allocator){failing_resize, &s->failing};
  CHECK(model_open(&s->model, n, &s->allocator));
}

static bool is_unchanged(sweep *s, const spinney_stats *before) {
  spinney_stats now;
  spinney_matcher_stats(s->model.matcher, &now);
  if (now.ids != before->ids || now.entries != before->entries || now.attributes != before->attributes) return false;
  model_event event = random_event(&s->state, s->model.attributes);
  return answer_is_right(&s->model, &event);
}

// Lets the n-th request fail, for n from 0 until the filter goes in.
static void add_after_failures(sweep *s, uint32_t id, const model_filter *filter) {
  spinney_stats before;
  spinney_matcher_stats(s->model.matcher, &before);
  for (long n = 0;; n++) {
    s->failing.left = n;
    spinney_status status = model_add(&s->model, id, filter);
    s->failing.left = -1;
    if (status == SPINNEY_OK) return;
    s->failures++;
    CHECK(status == SPINNEY_NO_MEMORY);
    CHECK(is_unchanged(s, &before));
  }
}

// Removing never fails, also where it could use memory to tidy up.
static void remove_without_memory(sweep *s, uint32_t id) {
  s->failing.left = 0;
  model_remove(&s->model, id);
  s->failing.left = -1;
}

// Small matchers, which ask the allocator more often: blocks are cut from chunks that double.
static void test_adding(uint64_t seed) {
  sweep s;
  open_sweep(&s, 120, seed);
  for (uint32_t id = 0; id < s.model.n; id++) {
    model_filter filter = random_filter(&s.state);
    if (id % 5 == 4) filter = s.model.filters[chance(&s.state, id)];
    add_after_failures(&s, id, &filter);
  }
  CHECK(s.failures > 15);
  for (uint32_t id = 0; id < s.model.n; id++) {
    remove_without_memory(&s, id);
    model_event event = random_event(&s.state, s.model.attributes);
    if (id % 10 == 0) CHECK(answer_is_right(&s.model, &event));
  }
  model_close(&s.model);
}

// Boxes of one shape and one kind of range, so that pages and trees are built anew.
static void test_adding_many_of_a_kind(int dimensions) {
  sweep s;
  open_sweep(&s, 5000, 3);
  for (uint32_t id = 0; id < s.model.n; id++) {
    model_filter filter = {.n_boxes = 1, .n_predicates = {dimensions}};
    for (int d = 0; d < dimensions; d++) {
      double low = chance(&s.state, 4000) / 1000.0;
      filter.predicates[0][d] = (model_predicate){.kind = 1, .attribute = (uint8_t)d, .low = low, .high = low + 0.1};
    }
    add_after_failures(&s, id, &filter);
  }
  CHECK(s.failures > 10);
  for (uint32_t id = 0; id < s.model.n; id++) {
    remove_without_memory(&s, id);
    model_event event = random_event(&s.state, s.model.attributes);
    if (id % 500 == 0) CHECK(answer_is_right(&s.model, &event));
  }
  model_close(&s.model);
}

// When a bucket's few become more they move to spaces, all or none.
static void test_spreading_a_bucket(void) {
  sweep s;
  open_sweep(&s, 60, 3);
  for (uint32_t id = 0; id < s.model.n; id++) {
    model_filter filter = {.n_boxes = 1, .n_predicates = {3}};
    filter.predicates[0][0] = (model_predicate){.kind = 2, .attribute = MODEL_STRING, .text = "a"};
    for (uint8_t d = 1; d < 3; d++) {
      uint8_t attribute = (uint8_t)((d == 1 ? id : id + 1 + id / MODEL_NUMBERS % 5) % MODEL_NUMBERS);
      filter.predicates[0][d] = (model_predicate){.kind = 1, .attribute = attribute, .low = id / 100.0, .high = 3};
    }
    add_after_failures(&s, id, &filter);
  }
  for (int i = 0; i < 100; i++) {
    model_event event = random_event(&s.state, s.model.attributes);
    CHECK(answer_is_right(&s.model, &event));
  }
  model_close(&s.model);
}

static void test_making_and_matching(void) {
  failing_allocator failing = {-1};
  spinney_allocator allocator = {failing_resize, &failing};
  uint64_t state = 5;
  bool done = false;
  for (long n = 0; !done; n++) {
    spinney_matcher *matcher = NULL;
    spinney_reader *reader = NULL;
    program_bytes bytes;
    const uint32_t *ids;
    size_t n_ids;
    failing.left = n;
    done = spinney_matcher_new(&allocator, &matcher, NULL) == SPINNEY_OK;
    for (uint32_t id = 0; done && id < 200; id++) {
      model_filter filter = random_filter(&state);
      encode(&filter, &bytes);
      done = spinney_add(matcher, id, bytes.bytes, bytes.length, NULL) == SPINNEY_OK;
    }
    done = done && spinney_reader_new(matcher, &reader, NULL) == SPINNEY_OK;
    uint32_t attributes[MODEL_ATTRIBUTES];
    for (uint32_t i = 0; i < MODEL_ATTRIBUTES; i++) attributes[i] = i;
    model_event event = random_event(&state, attributes);
    done = done && spinney_match(reader, event.values, MODEL_ATTRIBUTES, &ids, &n_ids, NULL) == SPINNEY_OK;
    failing.left = -1;
    if (!done && reader) CHECK(spinney_match(reader, event.values, MODEL_ATTRIBUTES, &ids, &n_ids, NULL) == SPINNEY_OK);
    spinney_reader_free(reader);
    spinney_matcher_free(matcher);
  }
}

// All that was asked for is given back, and the count of bytes says so.
static long balance;

static void *counting_resize(void *context, void *memory, size_t size) {
  (void)context;
  if (size) {
    balance += !memory;
    return realloc(memory, size);
  }
  balance -= memory != NULL;
  free(memory);
  return NULL;
}

static void test_everything_is_given_back(void) {
  spinney_allocator allocator = {counting_resize, NULL};
  uint64_t state = 6;
  model m;
  CHECK(model_open(&m, 1000, &allocator));
  for (uint32_t id = 0; id < m.n; id++) {
    model_filter filter = random_filter(&state);
    CHECK(model_add(&m, id, &filter) == SPINNEY_OK);
  }
  CHECK(balance > 0);
  model_close(&m);
  CHECK(balance == 0);
}

int main(void) {
  for (uint64_t seed = 1; seed <= 40; seed++) test_adding(seed);
  test_adding_many_of_a_kind(1);
  test_adding_many_of_a_kind(2);
  test_spreading_a_bucket();
  test_making_and_matching();
  test_everything_is_given_back();
  return CHECK_RESULT;
}
