// filter_model.h - random filters and events as plain structures, their bytes, and what they mean, said as simply as
// can be.

#ifndef FILTER_MODEL_H
#define FILTER_MODEL_H

#include <math.h>

#include "check.h"
#include "program_bytes.h"
#include "spinney.h"

enum { MODEL_NUMBERS = 6, MODEL_ATTRIBUTES = 8, MODEL_STRING = 6, MODEL_BOOLEAN = 7, MODEL_PREDICATES = 6, MODEL_BOXES = 3 };

static const char *const model_names[MODEL_ATTRIBUTES] = {"n0", "n1", "n2", "n3", "n4", "n5", "text", "flag"};

// ---- Chance ----------------------------------------------------------------------------------------------------

static inline uint32_t chance(uint64_t *state, uint32_t below) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (uint32_t)((*state >> 32) % below);
}

// Few different ones, so that ends meet; some that a float can not hold, and some beyond all floats.
static inline double chance_number(uint64_t *state) {
  static const double odd[] = {0.0, -0.0, 1e300, -1e300, 3.4028234663852886e38, 3.4028235e38, 16777217, 1e-320};
  if (!chance(state, 12)) return odd[chance(state, sizeof odd / sizeof *odd)];
  double number = chance(state, 41) / 10.0 - 1;
  return chance(state, 8) ? number : nextafter(number, chance(state, 2) ? 9 : -9);
}

static inline const char *chance_text(uint64_t *state) {
  static const char *const texts[] = {"", "a", "ab", "abc", "b", "NO2", "NO2 outdoors, at the height of a child", "\xc3\xa4"};
  return texts[chance(state, sizeof texts / sizeof *texts)];
}

// ---- Events ----------------------------------------------------------------------------------------------------

typedef struct model_event {
  spinney_value values[MODEL_ATTRIBUTES];  // by attribute; SPINNEY_NULL: not sent
} model_event;

static inline model_event random_event(uint64_t *state, const uint32_t *attributes) {
  model_event event = {0};
  for (int i = 0; i < MODEL_ATTRIBUTES; i++) {
    spinney_value *value = &event.values[i];
    value->attribute = attributes[i];
    if (!chance(state, 5)) continue;
    value->type = i < MODEL_NUMBERS ? SPINNEY_NUMBER : i == MODEL_STRING ? SPINNEY_STRING : SPINNEY_BOOLEAN;
    if (!chance(state, 12)) value->type = 1 + chance(state, 3);  // another sensor's idea of that attribute
    value->number = value->type == SPINNEY_BOOLEAN ? chance(state, 2) : chance_number(state);
    value->text = chance_text(state);
    value->length = strlen(value->text);
  }
  return event;
}

// ---- Filters ---------------------------------------------------------------------------------------------------

typedef struct model_predicate {
  uint8_t kind;
  uint8_t attribute;
  uint8_t flag;
  double low, high;
  const char *text;
} model_predicate;

typedef struct model_filter {
  int n_boxes;
  int n_predicates[MODEL_BOXES];
  model_predicate predicates[MODEL_BOXES][MODEL_PREDICATES];
  bool has_program;  // n0 > limit
  double limit;
} model_filter;

static inline model_predicate random_predicate(uint64_t *state) {
  model_predicate p = {.kind = 1, .attribute = (uint8_t)chance(state, MODEL_NUMBERS)};
  if (!chance(state, 4)) p.kind = (uint8_t)(2 + chance(state, 4));
  if (p.kind == 2 || p.kind == 3) p.attribute = MODEL_STRING;
  if (p.kind == 4) p.attribute = MODEL_BOOLEAN;
  if (p.kind == 5) p.attribute = (uint8_t)chance(state, MODEL_ATTRIBUTES);
  p.low = chance_number(state);
  p.high = chance(state, 5) ? p.low + chance(state, 20) / 10.0 : p.low;
  if (!chance(state, 4)) p.low = -(double)INFINITY;
  if (!chance(state, 4)) p.high = (double)INFINITY;
  if (!chance(state, 30)) p.high = p.low - 1;
  p.text = chance_text(state);
  p.flag = (uint8_t)chance(state, 2);
  return p;
}

static inline bool is_there(const model_filter *f, int box, model_predicate p) {
  for (int i = 0; i < f->n_predicates[box]; i++)
    if (f->predicates[box][i].kind == p.kind && f->predicates[box][i].attribute == p.attribute) return true;
  return false;
}

static inline model_filter random_filter(uint64_t *state) {
  model_filter f = {.n_boxes = 1, .has_program = !chance(state, 8), .limit = chance_number(state)};
  if (!chance(state, 6)) f.n_boxes = (int)chance(state, MODEL_BOXES + 1);
  for (int b = 0; b < f.n_boxes; b++) {
    int wanted = chance(state, 20) ? 1 + (int)chance(state, 4) : (int)chance(state, MODEL_PREDICATES + 1);
    for (int i = 0; i < wanted; i++) {
      model_predicate p = random_predicate(state);
      if (!is_there(&f, b, p)) f.predicates[b][f.n_predicates[b]++] = p;
    }
  }
  return f;
}

static inline void put_name(program_bytes *out, const char *name) {
  put_u16(out, (uint16_t)strlen(name));
  put(out, name, strlen(name));
}

static inline void put_predicate(program_bytes *out, const model_predicate *p) {
  put_u8(out, p->kind);
  put_u16(out, p->attribute);
  if (p->kind == 1) put_f64(out, p->low), put_f64(out, p->high);
  if (p->kind == 2 || p->kind == 3) put_text(out, p->text);
  if (p->kind == 4) put_u8(out, p->flag);
}

static inline void encode(const model_filter *f, program_bytes *out) {
  out->length = 0;
  put(out, "SF\1", 3);
  put_u8(out, f->has_program);
  put_u16(out, MODEL_ATTRIBUTES);
  for (int i = 0; i < MODEL_ATTRIBUTES; i++) put_name(out, model_names[i]);
  put_u16(out, (uint16_t)f->n_boxes);
  for (int b = 0; b < f->n_boxes; b++) {
    put_u8(out, (uint8_t)f->n_predicates[b]);
    for (int i = 0; i < f->n_predicates[b]; i++) put_predicate(out, &f->predicates[b][i]);
  }
  if (!f->has_program) return;
  put_u32(out, 3 + 9 + 1);
  put_attribute(out, 0);
  put_number(out, f->limit);
  put_u8(out, 0x23);
}

// ---- Meaning ---------------------------------------------------------------------------------------------------

static inline bool predicate_is_true(const model_predicate *p, const model_event *event) {
  const spinney_value *v = &event->values[p->attribute];
  switch (p->kind) {
    case 1: return v->type == SPINNEY_NUMBER && v->number >= p->low && v->number <= p->high;
    case 2: return v->type == SPINNEY_STRING && !strcmp(v->text, p->text);
    case 3: return v->type == SPINNEY_STRING && !strncmp(v->text, p->text, strlen(p->text));
    case 4: return v->type == SPINNEY_BOOLEAN && v->number == p->flag;
    default: return v->type != SPINNEY_NULL;
  }
}

static inline bool is_true(const model_filter *f, const model_event *event) {
  const spinney_value *first = &event->values[0];
  if (f->has_program && !(first->type == SPINNEY_NUMBER && first->number > f->limit)) return false;
  for (int b = 0; b < f->n_boxes; b++) {
    bool all = true;
    for (int i = 0; i < f->n_predicates[b]; i++) all = all && predicate_is_true(&f->predicates[b][i], event);
    if (all) return true;
  }
  return false;
}

// ---- A matcher beside its model --------------------------------------------------------------------------------

typedef struct model {
  spinney_matcher *matcher;
  spinney_reader *reader;
  uint32_t attributes[MODEL_ATTRIBUTES];
  uint32_t n;             // ids are below
  model_filter *filters;  // by id
  bool *held;             // by id
  uint8_t *seen;          // by id, for one answer
} model;

static inline bool model_open(model *m, uint32_t n, const spinney_allocator *allocator) {
  *m = (model){.n = n};
  m->filters = calloc(n, sizeof *m->filters);
  m->held = calloc(n, sizeof *m->held);
  m->seen = calloc(n, sizeof *m->seen);
  if (spinney_matcher_new(allocator, &m->matcher, NULL) || spinney_reader_new(m->matcher, &m->reader, NULL)) return false;
  for (int i = 0; i < MODEL_ATTRIBUTES; i++)
    if (spinney_attribute(m->matcher, model_names[i], strlen(model_names[i]), &m->attributes[i], NULL)) return false;
  return true;
}

static inline void model_close(model *m) {
  spinney_reader_free(m->reader);
  spinney_matcher_free(m->matcher);
  free(m->filters);
  free(m->held);
  free(m->seen);
}

static inline spinney_status model_add(model *m, uint32_t id, const model_filter *filter) {
  static _Thread_local program_bytes bytes;
  encode(filter, &bytes);
  spinney_status status = spinney_add(m->matcher, id, bytes.bytes, bytes.length, NULL);
  if (status) return status;
  m->filters[id] = *filter;
  m->held[id] = true;
  return status;
}

static inline void model_remove(model *m, uint32_t id) {
  CHECK(spinney_remove(m->matcher, id, NULL) == SPINNEY_OK);
  m->held[id] = false;
}

// Whether the answer is the model's, each id once.
static inline bool answer_is_right(model *m, const model_event *event) {
  const uint32_t *ids;
  size_t n_ids, expected = 0;
  if (spinney_match(m->reader, event->values, MODEL_ATTRIBUTES, &ids, &n_ids, NULL)) return false;
  memset(m->seen, 0, m->n);
  for (size_t i = 0; i < n_ids; i++)
    if (ids[i] >= m->n || m->seen[ids[i]]++) return false;
  for (uint32_t id = 0; id < m->n; id++) {
    bool hit = m->held[id] && is_true(&m->filters[id], event);
    if (hit && !m->seen[id]) return false;
    expected += hit;
  }
  return expected == n_ids;
}

#endif
