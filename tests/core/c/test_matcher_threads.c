// test_matcher_threads.c - matching while others add and remove: what stays is always found, and nothing wrong ever is.

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "filter_model.h"

enum { STAYING = 300, COMING = 300, READERS = 2, EVENTS = 400, CHANGES = 3000 };

typedef struct shared {
  model model;
  atomic_int failures;
} shared;

typedef struct reader_task {
  shared *shared;
  uint64_t state;
} reader_task;

static bool is_right(shared *s, const model_event *event, const uint32_t *ids, size_t n) {
  uint32_t found = 0, expected = 0;
  for (size_t i = 0; i < n; i++) {
    if (ids[i] >= STAYING + COMING || !is_true(&s->model.filters[ids[i]], event)) return false;
    found += ids[i] < STAYING;
  }
  for (uint32_t id = 0; id < STAYING; id++) expected += is_true(&s->model.filters[id], event);
  return found == expected;
}

static void *read_events(void *argument) {
  reader_task *task = argument;
  shared *s = task->shared;
  spinney_reader *reader;
  if (spinney_reader_new(s->model.matcher, &reader, NULL)) {
    atomic_fetch_add(&s->failures, 1);
    return NULL;
  }
  for (int i = 0; i < EVENTS; i++) {
    const uint32_t *ids;
    size_t n;
    model_event event = random_event(&task->state, s->model.attributes);
    spinney_status status = spinney_match(reader, event.values, MODEL_ATTRIBUTES, &ids, &n, NULL);
    if (status || !is_right(s, &event, ids, n)) atomic_fetch_add(&s->failures, 1);
  }
  spinney_reader_free(reader);
  return NULL;
}

// The filters of what comes and goes are known beforehand, since readers look them up.
static void *change(void *argument) {
  shared *s = argument;
  uint64_t state = 77;
  bool held[COMING] = {false};
  program_bytes bytes;
  for (int i = 0; i < CHANGES; i++) {
    uint32_t k = chance(&state, COMING), id = STAYING + k;
    encode(&s->model.filters[id], &bytes);
    spinney_status status = held[k] ? spinney_remove(s->model.matcher, id, NULL)
                                    : spinney_add(s->model.matcher, id, bytes.bytes, bytes.length, NULL);
    if (status) atomic_fetch_add(&s->failures, 1);
    held[k] = !held[k];
  }
  return NULL;
}

int main(void) {
  static shared s;
  uint64_t state = 99;
  pthread_t threads[READERS + 1];
  reader_task tasks[READERS];
  CHECK(model_open(&s.model, STAYING + COMING, NULL));
  for (uint32_t id = 0; id < STAYING + COMING; id++) {
    model_filter filter = random_filter(&state);
    if (id < STAYING) CHECK(model_add(&s.model, id, &filter) == SPINNEY_OK);
    s.model.filters[id] = filter;
  }
  for (int i = 0; i < READERS; i++) {
    tasks[i] = (reader_task){&s, 1000 + (uint64_t)i};
    CHECK(!pthread_create(&threads[i], NULL, read_events, &tasks[i]));
  }
  CHECK(!pthread_create(&threads[READERS], NULL, change, &s));
  for (int i = 0; i <= READERS; i++) pthread_join(threads[i], NULL);
  CHECK(atomic_load(&s.failures) == 0);
  model_close(&s.model);
  return CHECK_RESULT;
}
