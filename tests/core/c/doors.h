// doors.h - a matcher that tells what came through a door: filters that ask for one attribute each.

#ifndef DOORS_H
#define DOORS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "program_bytes.h"
#include "spinney.h"

static spinney_matcher *door_matcher;
static spinney_reader *door_reader;
static spinney_matches door_matches;
static spinney_error door_error;

static inline bool doors_open(const spinney_allocator *allocator) {
  door_matcher = NULL;
  door_reader = NULL;
  return spinney_matcher_new(allocator, &door_matcher, &door_error) == SPINNEY_OK &&
         spinney_reader_new(door_matcher, &door_reader, &door_error) == SPINNEY_OK;
}

static inline void doors_close(void) {
  spinney_reader_free(door_reader);
  spinney_matcher_free(door_matcher);
}

// One box with one predicate, whose operand the caller puts behind it.
static inline program_bytes filter_on(const char *name, uint8_t kind) {
  program_bytes filter = {.length = 0};
  put(&filter, "SF\x01", 3);
  put_u8(&filter, 0);
  put_u16(&filter, 1);
  put_u16(&filter, (uint16_t)strlen(name));
  put(&filter, name, strlen(name));
  put_u16(&filter, 1);
  put_u8(&filter, 1);
  put_u8(&filter, kind);
  put_u16(&filter, 0);
  return filter;
}

static inline bool add(uint32_t id, const program_bytes *filter) {
  return spinney_add(door_matcher, id, filter->bytes, filter->length, &door_error) == SPINNEY_OK;
}

static inline bool add_number(uint32_t id, const char *name, double number) {
  program_bytes filter = filter_on(name, 1);
  put_f64(&filter, number);
  put_f64(&filter, number);
  return add(id, &filter);
}

static inline bool add_text(uint32_t id, const char *name, const char *text) {
  program_bytes filter = filter_on(name, 2);
  put_text(&filter, text);
  return add(id, &filter);
}

static inline bool add_boolean(uint32_t id, const char *name, uint8_t truth) {
  program_bytes filter = filter_on(name, 4);
  put_u8(&filter, truth);
  return add(id, &filter);
}

static inline bool add_present(uint32_t id, const char *name) {
  program_bytes filter = filter_on(name, 5);
  return add(id, &filter);
}

// Whether the ids of an event are exactly these; ids is a sum of bits.
static inline bool event_matches(size_t event, uint32_t ids) {
  uint32_t found = 0;
  for (uint64_t i = door_matches.offsets[event]; i < door_matches.offsets[event + 1]; i++) {
    found |= UINT32_C(1) << door_matches.ids[i];
  }
  return found == ids;
}

#endif
