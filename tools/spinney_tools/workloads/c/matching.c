// matching.c - measures the core against the scan, in one process and in turns, and checks every answer.
//
//   matching oracle  FOLDER W SIZE FILE                   what each event must match, by the scan
//   matching measure FOLDER W SIZE FILE SECONDS ROUNDS    one line of JSON; ends with 1 if any answer is wrong
//
// A round times the scan over as many events as fit in SECONDS, then the core over all events; the best round counts,
// and only the ratio of the two means anything on another machine. The core is measured as built, and again after half
// of the subscriptions were removed and added again in random orders. All times are those of this thread alone.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

enum { HALFWAY_EVENTS = 20, CORE_PASSES = 3, SCAN_EVENTS_BETWEEN_CLOCKS = 8 };

// What an event must match: how many ids, and the sum of their mixed bits, which no other set of ids is likely to have.
typedef struct answer {
  uint64_t count;
  uint64_t digest;
} answer;

static answer answer_of(const uint32_t *ids, size_t count) {
  answer a = {count, 0};
  for (size_t i = 0; i < count; i++) a.digest += kit_mix(ids[i]);
  return a;
}

static bool same(answer a, answer b) { return a.count == b.count && a.digest == b.digest; }

// ---- oracle

static void write_oracle(const kit_workload *workload, const char *path) {
  uint32_t *ids = kit_alloc(workload->n_subscriptions + 1, sizeof *ids);
  FILE *file = fopen(path, "wb");
  if (!file) kit_die("cannot write", path);
  for (size_t event = 0; event < workload->n_events; event++) {
    answer a = answer_of(ids, kit_scan(workload, event, ids));
    if (fwrite(&a, sizeof a, 1, file) != 1) kit_die("cannot write", path);
  }
  if (fclose(file) != 0) kit_die("cannot write", path);
  free(ids);
}

static answer *read_oracle(const kit_workload *workload, const char *path) {
  answer *answers = kit_alloc(workload->n_events, sizeof *answers);
  FILE *file = fopen(path, "rb");
  if (!file) kit_die("cannot open", path);
  if (fread(answers, sizeof *answers, workload->n_events, file) != workload->n_events) kit_die("short oracle", path);
  fclose(file);
  return answers;
}

// ---- checks

static size_t wrong_events(kit_engine *engine, const answer *oracle) {
  size_t wrong = 0;
  for (size_t event = 0; event < engine->workload->n_events; event++) {
    const uint32_t *ids;
    size_t count = kit_engine_match(engine, event, &ids);
    wrong += !same(answer_of(ids, count), oracle[event]);
  }
  return wrong;
}

// The same for a few events while some subscriptions are away; the scan knows nothing of that, so they are left out.
static size_t wrong_events_without(kit_engine *engine, const bool *away, uint32_t *scratch) {
  const kit_workload *workload = engine->workload;
  size_t wrong = 0;
  for (size_t event = 0; event < workload->n_events && event < HALFWAY_EVENTS; event++) {
    size_t count = kit_scan(workload, event, scratch), kept = 0;
    for (size_t i = 0; i < count; i++)
      if (!away[scratch[i]]) scratch[kept++] = scratch[i];
    const uint32_t *ids;
    size_t found = kit_engine_match(engine, event, &ids);
    wrong += !same(answer_of(ids, found), answer_of(scratch, kept));
  }
  return wrong;
}

// ---- times, in microseconds per event

typedef struct times {
  double scan, core;
  size_t scan_events;
} times;

static double scan_pass(const kit_workload *workload, size_t events, uint32_t *ids) {
  double start = kit_busy();
  for (size_t event = 0; event < events; event++) kit_scan(workload, event, ids);
  return (kit_busy() - start) / (double)events * 1e6;
}

static double core_pass(kit_engine *engine) {
  const uint32_t *ids;
  size_t events = engine->workload->n_events;
  double start = kit_busy();
  for (size_t event = 0; event < events; event++) kit_engine_match(engine, event, &ids);
  return (kit_busy() - start) / (double)events * 1e6;
}

static size_t scan_events_within(const kit_workload *workload, double seconds, uint32_t *ids) {
  size_t event = 0;
  for (double start = kit_busy(); event < workload->n_events; event++) {
    if (event % SCAN_EVENTS_BETWEEN_CLOCKS == 0 && event && kit_busy() - start > seconds) break;
    kit_scan(workload, event, ids);
  }
  return event;
}

static void lower(double *best, double value) {
  if (value < *best) *best = value;
}

static times measure(kit_engine *engine, size_t scan_events, int rounds, uint32_t *ids) {
  times best = {1e30, 1e30, scan_events};
  for (int round = 0; round < rounds; round++) {
    lower(&best.scan, scan_pass(engine->workload, scan_events, ids));
    for (int pass = 0; pass < CORE_PASSES; pass++) lower(&best.core, core_pass(engine));
  }
  return best;
}

// ---- building and changing

static double build(kit_engine *engine) {
  double start = kit_busy();
  for (uint32_t i = 0; i < engine->workload->n_subscriptions; i++) kit_engine_add(engine, i);
  return kit_busy() - start;
}

typedef struct churn {
  double delete_us, insert_us;
  size_t wrong_halfway;
} churn;

static churn change_half(kit_engine *engine, uint32_t *scratch) {
  size_t n = engine->workload->n_subscriptions, half = n / 2;
  uint32_t *order = kit_alloc(n, sizeof *order);
  bool *away = kit_alloc(n, sizeof *away);
  for (uint32_t i = 0; i < n; i++) order[i] = i;
  kit_shuffle(order, n, 1);
  churn out = {0};
  double start = kit_busy();
  for (size_t i = 0; i < half; i++) kit_engine_remove(engine, order[i]);
  out.delete_us = (kit_busy() - start) / (double)half * 1e6;
  for (size_t i = 0; i < half; i++) away[order[i]] = true;
  out.wrong_halfway = wrong_events_without(engine, away, scratch);
  kit_shuffle(order, half, 2);
  start = kit_busy();
  for (size_t i = 0; i < half; i++) kit_engine_add(engine, order[i]);
  out.insert_us = (kit_busy() - start) / (double)half * 1e6;
  free(order);
  free(away);
  return out;
}

// ---- the program

static double mean_count(const answer *oracle, size_t events) {
  uint64_t total = 0;
  for (size_t event = 0; event < events; event++) total += oracle[event].count;
  return (double)total / (double)events;
}

// One subscription set, measured from empty to changed.
typedef struct result {
  times fresh, changed;
  churn churn;
  double build_s, resident_bytes;
  spinney_stats built_stats, changed_stats;
  size_t wrong;
} result;

static result run(const kit_workload *workload, const answer *oracle, double seconds, int rounds) {
  uint32_t *ids = kit_alloc(workload->n_subscriptions + 1, sizeof *ids);
  size_t scan_events = scan_events_within(workload, seconds, ids);
  result r = {0};
  kit_engine engine;
  kit_engine_open(&engine, workload);
  double resident_before = kit_resident_bytes();
  r.build_s = build(&engine);
  r.resident_bytes = kit_resident_bytes() - resident_before;
  spinney_matcher_stats(engine.matcher, &r.built_stats);
  r.wrong = wrong_events(&engine, oracle);
  r.fresh = measure(&engine, scan_events, rounds, ids);
  r.churn = change_half(&engine, ids);
  spinney_matcher_stats(engine.matcher, &r.changed_stats);
  r.wrong += r.churn.wrong_halfway + wrong_events(&engine, oracle);
  r.changed = measure(&engine, scan_events, rounds, ids);
  kit_engine_close(&engine);
  free(ids);
  return r;
}

static void print(const kit_workload *workload, const answer *oracle, const result *r) {
  double n = (double)workload->n_subscriptions;
  printf("{\"built_us\": %.4f, \"built_scan_us\": %.4f, ", r->fresh.core, r->fresh.scan);
  printf("\"us\": %.4f, \"scan_us\": %.4f, ", r->changed.core, r->changed.scan);
  printf("\"scan_events\": %zu, \"events\": %zu, ", r->changed.scan_events, workload->n_events);
  printf("\"matches_per_event\": %.2f, ", mean_count(oracle, workload->n_events));
  printf("\"build_s\": %.4f, \"resident_bytes\": %.1f, ", r->build_s, r->resident_bytes / n);
  printf("\"built_bytes\": %.1f, \"bytes\": %.1f, ", (double)r->built_stats.bytes / n,
         (double)r->changed_stats.bytes / n);
  printf("\"insert_us\": %.3f, \"delete_us\": %.3f, ", r->churn.insert_us, r->churn.delete_us);
  printf("\"entries\": %llu, \"wrong_events\": %zu, ", (unsigned long long)r->built_stats.entries, r->wrong);
  printf("\"simd\": \"%s\"}\n", spinney_simd_name(spinney_simd_best()));
}

int main(int argc, char **argv) {
  bool oracle = argc == 6 && !strcmp(argv[1], "oracle");
  if (!oracle && (argc != 8 || strcmp(argv[1], "measure")))
    kit_die("usage", "matching oracle|measure FOLDER W SIZE FILE [SECONDS ROUNDS]");
  kit_workload workload;
  kit_load(&workload, argv[2], argv[3], argv[4]);
  int status = 0;
  if (oracle) {
    write_oracle(&workload, argv[5]);
  } else {
    answer *answers = read_oracle(&workload, argv[5]);
    result r = run(&workload, answers, atof(argv[6]), atoi(argv[7]));
    print(&workload, answers, &r);
    status = r.wrong != 0;
    free(answers);
  }
  kit_unload(&workload);
  return status;
}
