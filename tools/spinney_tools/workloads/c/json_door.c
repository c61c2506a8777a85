// json_door.c - what it costs to match a reading that comes as JSON, next to one that comes as values.
//
//   json_door cost    FOLDER W SIZE ROUNDS    a reading of 200 bytes; 60 attributes of which an event has 5
//   json_door threads FOLDER W SIZE ROUNDS    readings per second with one thread and with two
//
// The best round counts. W2 is meant: few matches, so that the door and not the answer is what is timed. Prints one
// line of JSON.

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

enum {
  READING_BYTES = 200,
  THREAD_PASSES = 20,
  PLAIN_STEPS = 100,
  KNOWN_ATTRIBUTES = 60,
  EVENT_ATTRIBUTES = 5,
  SPARSE_FILTERS = 10000,
  SPARSE_EVENTS = 10000
};

static void check(spinney_status status, const spinney_error *error) {
  if (status != SPINNEY_OK) kit_die("spinney", error->message);
}

static void lower(double *best, double value) {
  if (value < *best) *best = value;
}

// ---- readings: the workload's attributes among others that no subscription names

typedef struct readings {
  char *text;  // READING_BYTES + 1 each
  size_t count;
} readings;

static size_t write_attributes(char *at, size_t room, const kit_workload *workload, const double *row) {
  size_t used = 0;
  for (size_t i = 0; i < workload->n_attributes; i++) {
    const char *name = workload->names[i];
    int length = workload->is_string[i]
                     ? snprintf(at + used, room - used, ",\"%s\":\"%s\"", name, workload->strings[(size_t)row[i]])
                     : snprintf(at + used, room - used, ",\"%s\":%.5f", name, row[i]);
    if (length < 0 || (size_t)length >= room - used) kit_die("reading too long", name);
    used += (size_t)length;
  }
  return used;
}

static void write_reading(char *text, const kit_workload *workload, size_t event) {
  const double *row = workload->values + event * workload->n_attributes;
  size_t room = READING_BYTES + 1;
  size_t used = (size_t)snprintf(text, room, "{\"id\":\"mote-0042/3/%zu\",\"source\":\"mote-0042\",\"time\":%zu.25",
                                 event, 1700000000 + event);
  used += write_attributes(text + used, room - used, workload, row);
  static const char ending[] = ",\"battery\":87,\"unit\":\"ug/m3\",\"note\":\"";
  if (used + strlen(ending) + 2 > READING_BYTES) kit_die("reading too long", text);
  snprintf(text + used, room - used, "%s%*s\"}", ending, (int)(READING_BYTES - used - strlen(ending) - 2), "");
}

static readings make_readings(const kit_workload *workload) {
  readings out = {kit_alloc(workload->n_events, READING_BYTES + 1), workload->n_events};
  for (size_t i = 0; i < out.count; i++) write_reading(out.text + i * (READING_BYTES + 1), workload, i);
  return out;
}

static const char *reading(const readings *all, size_t i) { return all->text + i * (READING_BYTES + 1); }

static size_t match_json(spinney_reader *reader, const char *text) {
  spinney_error error;
  spinney_matches matches;
  check(spinney_match_json(reader, text, READING_BYTES, &matches, &error), &error);
  return (size_t)matches.offsets[matches.events];
}

// ---- cost of the door

static double values_pass(kit_engine *engine, size_t *found) {
  const uint32_t *ids;
  double start = kit_busy();
  *found = 0;
  for (size_t i = 0; i < engine->workload->n_events; i++) *found += kit_engine_match(engine, i, &ids);
  return (kit_busy() - start) / (double)engine->workload->n_events * 1e6;
}

static double json_pass(spinney_reader *reader, const readings *all, size_t *found) {
  double start = kit_busy();
  *found = 0;
  for (size_t i = 0; i < all->count; i++) *found += match_json(reader, reading(all, i));
  return (kit_busy() - start) / (double)all->count * 1e6;
}

static void print_door_cost(kit_engine *engine, const readings *all, int rounds) {
  double values_us = 1e30, json_us = 1e30;
  for (int round = 0; round < rounds; round++) {
    size_t by_values, by_json;
    lower(&values_us, values_pass(engine, &by_values));
    lower(&json_us, json_pass(engine->reader, all, &by_json));
    if (by_values != by_json) kit_die("wrong answer", "JSON and values match differently");
  }
  printf("{\"bytes\": %d, \"values_us\": %.4f, \"json_us\": %.4f, ", READING_BYTES, values_us, json_us);
}

// ---- attributes that are known but missing

typedef struct sparse {
  spinney_matcher *matcher;
  spinney_reader *reader;
  uint32_t attributes[KNOWN_ATTRIBUTES];
} sparse;

static void sparse_open(sparse *s, size_t known) {
  spinney_error error;
  check(spinney_matcher_new(NULL, &s->matcher, &error), &error);
  check(spinney_reader_new(s->matcher, &s->reader, &error), &error);
  for (size_t i = 0; i < known; i++) {
    char name[3] = {'a', (char)('0' + i / 10), (char)('0' + i % 10)};
    check(spinney_attribute(s->matcher, name, sizeof name, &s->attributes[i], &error), &error);
  }
}

static void sparse_close(sparse *s) {
  spinney_reader_free(s->reader);
  spinney_matcher_free(s->matcher);
}

static double uniform(uint64_t seed) { return (double)(kit_mix(seed) >> 11) * 0x1p-53; }

// One range on one attribute, a hundredth wide.
static void sparse_add(sparse *s, uint32_t id, size_t attribute) {
  spinney_error error;
  double low = uniform(id), high = low + 0.01;
  const uint8_t head[] = {'S', 'F', SPINNEY_FILTER_VERSION, 0, 1, 0,  // one attribute:
                          3,   0,   'a', (uint8_t)('0' + attribute / 10), (uint8_t)('0' + attribute % 10),
                          1,   0,   1,   1,  0, 0};  // one box, of one RANGE, on the first
  uint8_t filter[sizeof head + 2 * sizeof(double)];
  memcpy(filter, head, sizeof head);
  memcpy(filter + sizeof head, &low, sizeof low);
  memcpy(filter + sizeof head + sizeof low, &high, sizeof high);
  check(spinney_add(s->matcher, id, filter, sizeof filter, &error), &error);
}

static double sparse_pass(sparse *s, size_t *found) {
  spinney_error error;
  spinney_value values[EVENT_ATTRIBUTES];
  double start = kit_busy();
  *found = 0;
  for (uint64_t event = 0; event < SPARSE_EVENTS; event++) {
    for (size_t i = 0; i < EVENT_ATTRIBUTES; i++)
      values[i] = (spinney_value){.attribute = s->attributes[i],
                                  .type = SPINNEY_NUMBER,
                                  .number = uniform(event * EVENT_ATTRIBUTES + i + SPARSE_FILTERS)};
    const uint32_t *ids;
    size_t count;
    check(spinney_match(s->reader, values, EVENT_ATTRIBUTES, &ids, &count, &error), &error);
    *found += count;
  }
  return (kit_busy() - start) / SPARSE_EVENTS * 1e6;
}

// The same matches from a matcher that knows all attributes and from one that knows only those of the events.
static void print_sparse_cost(int rounds) {
  sparse all, few;
  sparse_open(&all, KNOWN_ATTRIBUTES);
  sparse_open(&few, EVENT_ATTRIBUTES);
  for (uint32_t id = 0; id < SPARSE_FILTERS; id++) {
    size_t attribute = id % KNOWN_ATTRIBUTES;
    sparse_add(&all, id, attribute);
    if (attribute < EVENT_ATTRIBUTES) sparse_add(&few, id, attribute);
  }
  double all_us = 1e30, few_us = 1e30;
  for (int round = 0; round < rounds; round++) {
    size_t found_all, found_few;
    lower(&all_us, sparse_pass(&all, &found_all));
    lower(&few_us, sparse_pass(&few, &found_few));
    if (found_all != found_few) kit_die("wrong answer", "missing attributes change the matches");
  }
  printf("\"known\": %d, \"present\": %d, \"known_us\": %.4f, \"present_us\": %.4f}\n", KNOWN_ATTRIBUTES,
         EVENT_ATTRIBUTES, all_us, few_us);
  sparse_close(&all);
  sparse_close(&few);
}

// ---- threads

typedef struct worker {
  pthread_t thread;
  spinney_reader *reader;
  const readings *all;
  uint64_t sum;
} worker;

static void *match_all(void *context) {
  worker *w = context;
  size_t found;
  for (int pass = 0; pass < THREAD_PASSES; pass++) json_pass(w->reader, w->all, &found);
  return NULL;
}

// The same number of steps of plain arithmetic: what the machine gives to two threads just now.
static void *count_up(void *context) {
  worker *w = context;
  for (uint64_t i = 0; i < (uint64_t)THREAD_PASSES * w->all->count * PLAIN_STEPS; i++) w->sum = kit_mix(w->sum + i);
  return NULL;
}

// Readings per second of so many threads together.
static double throughput(worker *workers, size_t threads, void *(*work)(void *)) {
  double start = kit_now();
  for (size_t i = 0; i < threads; i++)
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) kit_die("cannot start", "a thread");
  for (size_t i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
  return (double)(threads * THREAD_PASSES * workers->all->count) / (kit_now() - start);
}

static void higher(double *best, double value) {
  if (value > *best) *best = value;
}

static void print_threads(const kit_engine *engine, const readings *all, int rounds) {
  spinney_error error;
  worker workers[2] = {{.all = all}, {.all = all}};
  for (size_t i = 0; i < 2; i++) check(spinney_reader_new(engine->matcher, &workers[i].reader, &error), &error);
  double one = 0, two = 0, plain_one = 0, plain_two = 0;
  for (int round = 0; round < rounds; round++) {
    higher(&one, throughput(workers, 1, match_all));
    higher(&two, throughput(workers, 2, match_all));
    higher(&plain_one, throughput(workers, 1, count_up));
    higher(&plain_two, throughput(workers, 2, count_up));
  }
  for (size_t i = 0; i < 2; i++) spinney_reader_free(workers[i].reader);
  printf("{\"one_per_s\": %.0f, \"two_per_s\": %.0f, ", one, two);
  printf("\"plain_ratio\": %.3f}\n", plain_two / plain_one);
}

int main(int argc, char **argv) {
  bool cost = argc == 6 && !strcmp(argv[1], "cost");
  if (!cost && (argc != 6 || strcmp(argv[1], "threads")))
    kit_die("usage", "json_door cost|threads FOLDER W SIZE ROUNDS");
  int rounds = atoi(argv[5]);
  kit_workload workload;
  kit_engine engine;
  kit_load(&workload, argv[2], argv[3], argv[4]);
  kit_engine_open(&engine, &workload);
  for (uint32_t i = 0; i < workload.n_subscriptions; i++) kit_engine_add(&engine, i);
  readings all = make_readings(&workload);
  if (cost) {
    print_door_cost(&engine, &all, rounds);
    print_sparse_cost(rounds);
  } else {
    print_threads(&engine, &all, rounds);
  }
  free(all.text);
  kit_engine_close(&engine);
  kit_unload(&workload);
  return 0;
}
