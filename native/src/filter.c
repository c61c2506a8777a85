// filter.c - the byte form of a filter: checked once, then read without checks.

#include "filter.h"

#include <math.h>

enum { KINDS = SPINNEY_PRESENT + 1 };

// ---- Checking --------------------------------------------------------------------------------------------------

typedef struct parser {
  const uint8_t *start, *at, *end;
  spinney_error *error;
} parser;

static spinney_status fail_at(const parser *p, const uint8_t *at, const char *message) {
  return spinney_fail(p->error, SPINNEY_BAD_FILTER, (size_t)(at - p->start), "%s", message);
}

static bool has(const parser *p, size_t bytes) { return (size_t)(p->end - p->at) >= bytes; }

static spinney_status cut_short(const parser *p) { return fail_at(p, p->end, "the filter ends too early"); }

static spinney_status read_head(parser *p, spinney_filter *filter) {
  if (!has(p, SPINNEY_HEAD_FIXED)) return cut_short(p);
  if (p->at[0] != 'S' || p->at[1] != 'F') return fail_at(p, p->at, "a filter begins with 'SF'");
  if (p->at[2] != SPINNEY_FILTER_VERSION) return fail_at(p, p->at + 2, "unknown version of filters");
  if (p->at[3] > 1) return fail_at(p, p->at + 3, "has_program must be 0 or 1");
  filter->head = p->at;
  filter->has_program = p->at[3];
  filter->n_attributes = spinney_load_u16(p->at + 4);
  p->at += SPINNEY_HEAD_FIXED;
  for (uint32_t i = 0; i < filter->n_attributes; i++) {
    if (!has(p, 2) || !has(p, 2 + (size_t)spinney_load_u16(p->at))) return cut_short(p);
    p->at += 2 + spinney_load_u16(p->at);
  }
  filter->head_length = (uint32_t)(p->at - filter->head);
  return SPINNEY_OK;
}

static spinney_status check_range(parser *p) {
  if (!has(p, 16)) return cut_short(p);
  for (int i = 0; i < 2; i++, p->at += 8)
    if (isnan(spinney_load_f64(p->at))) return fail_at(p, p->at, "a range must not end in NaN");
  return SPINNEY_OK;
}

static spinney_status check_string(parser *p) {
  if (!has(p, 4) || !has(p, 4 + (size_t)spinney_load_u32(p->at))) return cut_short(p);
  p->at += 4 + (size_t)spinney_load_u32(p->at);
  return SPINNEY_OK;
}

static spinney_status check_boolean(parser *p) {
  if (!has(p, 1)) return cut_short(p);
  if (*p->at > 1) return fail_at(p, p->at, "a boolean must be 0 or 1");
  p->at++;
  return SPINNEY_OK;
}

static spinney_status check_predicate(parser *p, uint32_t n_attributes) {
  if (!has(p, 3)) return cut_short(p);
  uint8_t kind = p->at[0];
  if (kind < SPINNEY_RANGE || kind > SPINNEY_PRESENT) return fail_at(p, p->at, "unknown kind of predicate");
  if (spinney_load_u16(p->at + 1) >= n_attributes) return fail_at(p, p->at + 1, "no such attribute in the filter");
  p->at += 3;
  switch (kind) {
    case SPINNEY_RANGE: return check_range(p);
    case SPINNEY_EQUALS:
    case SPINNEY_PREFIX: return check_string(p);
    case SPINNEY_IS: return check_boolean(p);
    default: return SPINNEY_OK;
  }
}

// At most one predicate of each kind on an attribute. There are at most 255, mostly 1 to 4.
static spinney_status check_repeats(const parser *p, const uint8_t *const *predicates, uint32_t count) {
  for (uint32_t i = 1; i < count; i++)
    for (uint32_t k = 0; k < i; k++)
      if (!memcmp(predicates[i], predicates[k], 3))
        return fail_at(p, predicates[i], "two predicates of one kind on one attribute");
  return SPINNEY_OK;
}

static spinney_status check_box(parser *p, uint32_t n_attributes) {
  const uint8_t *predicates[UINT8_MAX];
  if (!has(p, 1)) return cut_short(p);
  uint32_t count = *p->at++;
  for (uint32_t i = 0; i < count; i++) {
    predicates[i] = p->at;
    spinney_status status = check_predicate(p, n_attributes);
    if (status != SPINNEY_OK) return status;
  }
  return check_repeats(p, predicates, count);
}

static spinney_status check_program(parser *p, const spinney_filter *filter) {
  if (!has(p, 4) || !has(p, 4 + (size_t)spinney_load_u32(p->at))) return cut_short(p);
  size_t length = spinney_load_u32(p->at);
  const uint8_t *code = p->at + 4;
  p->at = code + length;
  return spinney_program_check(code, length, filter->n_attributes, (size_t)(code - p->start), p->error);
}

static spinney_status read_body(parser *p, spinney_filter *filter) {
  filter->body = p->at;
  if (!has(p, SPINNEY_BODY_FIXED)) return cut_short(p);
  filter->n_boxes = spinney_load_u16(p->at);
  p->at += SPINNEY_BODY_FIXED;
  spinney_status status = SPINNEY_OK;
  for (uint32_t i = 0; status == SPINNEY_OK && i < filter->n_boxes; i++) status = check_box(p, filter->n_attributes);
  if (status == SPINNEY_OK && filter->has_program) status = check_program(p, filter);
  if (status != SPINNEY_OK) return status;
  if (p->at != p->end) return fail_at(p, p->at, "something follows the filter");
  filter->body_length = (uint32_t)(p->at - filter->body);
  return SPINNEY_OK;
}

spinney_status spinney_filter_read(const uint8_t *bytes, size_t length, spinney_filter *filter, spinney_error *error) {
  if (length > SPINNEY_MAX_FILTER_BYTES)
    return spinney_fail(error, SPINNEY_BAD_FILTER, SPINNEY_MAX_FILTER_BYTES, "the filter is too large");
  parser p = {bytes, bytes, bytes + length, error};
  spinney_status status = read_head(&p, filter);
  return status == SPINNEY_OK ? read_body(&p, filter) : status;
}

// ---- Reading ---------------------------------------------------------------------------------------------------

const uint8_t *spinney_box_end(const uint8_t *box) {
  spinney_predicate predicate;
  uint32_t count = *box++;
  for (uint32_t i = 0; i < count; i++) box = spinney_predicate_read(box, &predicate);
  return box;
}

static bool predicate_holds(const spinney_predicate *p, const spinney_value *value) {
  switch (p->kind) {
    case SPINNEY_RANGE: return value->type == SPINNEY_NUMBER && p->low <= value->number && value->number <= p->high;
    case SPINNEY_EQUALS:
      return value->type == SPINNEY_STRING && value->length == p->length &&
             (!p->length || !memcmp(value->text, p->bytes, p->length));
    case SPINNEY_PREFIX:
      return value->type == SPINNEY_STRING && value->length >= p->length &&
             (!p->length || !memcmp(value->text, p->bytes, p->length));
    case SPINNEY_IS: return value->type == SPINNEY_BOOLEAN && (value->number != 0) == *p->bytes;
    case SPINNEY_PRESENT: break;
  }
  return value->type != SPINNEY_NULL;
}

bool spinney_box_holds(const uint8_t *box, const uint32_t *map, const spinney_event *event) {
  uint32_t count = *box++;
  for (uint32_t i = 0; i < count; i++) {
    spinney_predicate predicate;
    box = spinney_predicate_read(box, &predicate);
    if (!predicate_holds(&predicate, &event->slots[map[predicate.attribute]])) return false;
  }
  return true;
}
