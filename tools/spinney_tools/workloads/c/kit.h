// kit.h - the workload kit in C: what every program of it shares.
//
//   load.c     reads a workload's text files (formats: README.md)
//   scan.c     the naive scan: oracle and baseline of all ratios
//   engine.c   Spinney's core behind its public header, fed from a workload
//   support.c  time, memory, random order, and how a program of the kit ends when something is wrong

#ifndef KIT_H
#define KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spinney.h"

enum { KIT_MAX_ATTRIBUTES = 16, KIT_MAX_STRINGS = 64, KIT_NAME_BYTES = 32 };

// ---- support.c -------------------------------------------------------------------------------------------------

_Noreturn void kit_die(const char *what, const char *detail);
void *kit_alloc(size_t count, size_t size);  // zeroed; dies instead of returning NULL
char *kit_read_file(const char *path);       // with a terminating zero
double kit_now(void);                        // seconds, monotonic
double kit_busy(void);                       // seconds in which this thread ran: others on the machine do not count
double kit_resident_bytes(void);             // 0 where the system does not say
uint64_t kit_mix(uint64_t x);                // spreads all bits; splitmix64's finaliser
void kit_shuffle(uint32_t *items, size_t count, uint64_t seed);

// ---- load.c ----------------------------------------------------------------------------------------------------

// Predicate j of subscription i, first[i] <= j < first[i + 1], is the closed interval low[j]..high[j]; a strict bound
// is moved to the next double. A string is its number in `strings`, and equality with it an interval of one point.
typedef struct kit_workload {
  size_t n_attributes;
  char names[KIT_MAX_ATTRIBUTES][KIT_NAME_BYTES];
  bool is_string[KIT_MAX_ATTRIBUTES];
  size_t n_strings;
  char *strings[KIT_MAX_STRINGS];
  size_t n_subscriptions;
  uint32_t *first;
  uint8_t *attribute;
  double *low, *high;
  size_t n_events;
  double *values;  // n_events rows of n_attributes
} kit_workload;

void kit_load(kit_workload *workload, const char *folder, const char *name, const char *size);
void kit_unload(kit_workload *workload);

// ---- scan.c ----------------------------------------------------------------------------------------------------

// Writes the ids that match, in ascending order, and returns how many. `ids` has room for all subscriptions.
size_t kit_scan(const kit_workload *workload, size_t event, uint32_t *ids);

// ---- engine.c --------------------------------------------------------------------------------------------------

typedef struct kit_engine {
  const kit_workload *workload;
  spinney_matcher *matcher;
  spinney_reader *reader;
  uint32_t attributes[KIT_MAX_ATTRIBUTES];  // the matcher's numbers
  spinney_value *values;                    // all events, n_attributes each
  uint8_t *filter;                          // the subscription that is being added
} kit_engine;

void kit_engine_open(kit_engine *engine, const kit_workload *workload);
void kit_engine_close(kit_engine *engine);
void kit_engine_add(kit_engine *engine, uint32_t subscription);  // under its line number
void kit_engine_remove(kit_engine *engine, uint32_t subscription);
size_t kit_engine_match(kit_engine *engine, size_t event, const uint32_t **ids);

#endif
