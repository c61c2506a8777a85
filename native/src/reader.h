// reader.h - what a reader is made of.

#ifndef SPINNEY_READER_H
#define SPINNEY_READER_H

#include "matcher.h"

// A number of the event as the bounds of boxes are compared with it, by side: low, and high negated.
typedef struct spinney_query_numbers {
  float possible[2];  // rounded up: what does not dominate a bound this way does not hold
  float certain[2];   // just below the number rounded down: what dominates a bound this way does hold
} spinney_query_numbers;

// The event, as a space's coordinates have it.
typedef struct spinney_probe {
  float possible[SPINNEY_COORDINATES];
  float certain[SPINNEY_COORDINATES];
  uint32_t n_coordinates;
} spinney_probe;

typedef struct spinney_visit {
  const spinney_node *node;
  uint32_t probe;
} spinney_visit;

struct spinney_reader {
  spinney_gate gate;
  spinney_matcher *matcher;

  spinney_event event;
  spinney_query_numbers *numbers;  // by attribute, for those that are numbers
  spinney_scratch text;            // the doors'
  spinney_scratch program;         // the programs'

  uint32_t *ids;  // the answer
  size_t n_ids, ids_capacity;
  uint64_t *offsets;  // n_events + 1
  size_t n_events;
  uint32_t offsets_capacity;
  spinney_hit *hits;
  uint32_t n_hits, hits_capacity;

  uint32_t *stamps;  // by the first part of entries with more than one box: the last event they were looked at for
  uint32_t stamps_capacity;
  uint32_t stamp;

  spinney_probe *probes;
  uint32_t n_probes, probes_capacity;
  spinney_visit *visits;
  uint32_t n_visits, visits_capacity;
};

// Appends the ids that match the event (search.c). false: no memory.
bool spinney_search(spinney_reader *reader);

#endif
