// filter.h - the byte form of a filter (spinney.h, section 3).

#ifndef SPINNEY_FILTER_H
#define SPINNEY_FILTER_H

#include "bytes.h"
#include "internal.h"

typedef enum spinney_predicate_kind {
  SPINNEY_RANGE = 1,
  SPINNEY_EQUALS = 2,
  SPINNEY_PREFIX = 3,
  SPINNEY_IS = 4,  // a boolean
  SPINNEY_PRESENT = 5
} spinney_predicate_kind;

typedef struct spinney_predicate {
  spinney_predicate_kind kind;
  uint32_t attribute;    // of the filter
  double low, high;      // RANGE
  const uint8_t *bytes;  // EQUALS, PREFIX: the string; IS: the one byte
  uint32_t length;
} spinney_predicate;

// A filter in its two parts: the head says which attributes, the body (boxes and program) what of them.
typedef struct spinney_filter {
  const uint8_t *head;
  uint32_t head_length;
  uint32_t n_attributes;
  const uint8_t *body;
  uint32_t body_length;
  uint32_t n_boxes;
  bool has_program;
} spinney_filter;

enum { SPINNEY_HEAD_FIXED = 6, SPINNEY_BODY_FIXED = 2 };  // bytes before the names, and before the boxes

// Checks everything, except that the names are distinct, which is seen when they get their attributes.
spinney_status spinney_filter_read(const uint8_t *bytes, size_t length, spinney_filter *filter, spinney_error *error);

// ---- Bytes that were checked -----------------------------------------------------------------------------------

// Reads a predicate and returns where the next begins.
static inline const uint8_t *spinney_predicate_read(const uint8_t *at, spinney_predicate *out) {
  out->kind = (spinney_predicate_kind)at[0];
  out->attribute = spinney_load_u16(at + 1);
  at += 3;
  switch (out->kind) {
    case SPINNEY_RANGE:
      out->low = spinney_load_f64(at);
      out->high = spinney_load_f64(at + 8);
      return at + 16;
    case SPINNEY_EQUALS:
    case SPINNEY_PREFIX:
      out->length = spinney_load_u32(at);
      out->bytes = at + 4;
      return out->bytes + out->length;
    case SPINNEY_IS:
      out->length = 1;
      out->bytes = at;
      return at + 1;
    case SPINNEY_PRESENT: break;
  }
  return at;
}

// From the first byte of a box to the first after it.
const uint8_t *spinney_box_end(const uint8_t *box);

// Whether every predicate of the box holds. map: the matcher's attribute for each of the filter's.
bool spinney_box_holds(const uint8_t *box, const uint32_t *map, const spinney_event *event);

#endif
