// engine.c - Spinney's core, through nothing but its public header, fed from a workload.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

// What a filter of a workload can need at most: its header, names, and one predicate for each attribute.
enum { MAX_FILTER_BYTES = 16 + KIT_MAX_ATTRIBUTES * (2 + KIT_NAME_BYTES + 3 + 16 + KIT_NAME_BYTES) };

static void check(spinney_status status, const spinney_error *error) {
  if (status != SPINNEY_OK) kit_die("spinney", error->message);
}

// ---- filters: section 3 of spinney.h

typedef struct writer {
  uint8_t *at;
} writer;

static void put(writer *out, const void *bytes, size_t length) {
  memcpy(out->at, bytes, length);
  out->at += length;
}

static void put_u8(writer *out, size_t value) { *out->at++ = (uint8_t)value; }

static void put_u16(writer *out, size_t value) {
  put_u8(out, value & 255);
  put_u8(out, value >> 8);
}

static void put_u32(writer *out, size_t value) {
  put_u16(out, value & 65535);
  put_u16(out, value >> 16);
}

static void put_f64(writer *out, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_u32(out, bits & 0xffffffffu);
  put_u32(out, bits >> 32);
}

// A subscription's predicates, those on one attribute taken together: a box may name each attribute once.
typedef struct box {
  size_t n;
  uint8_t attribute[KIT_MAX_ATTRIBUTES];
  double low[KIT_MAX_ATTRIBUTES], high[KIT_MAX_ATTRIBUTES];
} box;

static void narrow(box *b, uint8_t attribute, double low, double high) {
  size_t i = 0;
  while (i < b->n && b->attribute[i] != attribute) i++;
  if (i == b->n) {
    b->attribute[b->n++] = attribute;
    b->low[i] = low, b->high[i] = high;
    return;
  }
  b->low[i] = fmax(b->low[i], low);
  b->high[i] = fmin(b->high[i], high);
}

static box box_of(const kit_workload *workload, uint32_t subscription) {
  box b = {0};
  for (uint32_t j = workload->first[subscription]; j < workload->first[subscription + 1]; j++)
    narrow(&b, workload->attribute[j], workload->low[j], workload->high[j]);
  return b;
}

static void put_predicate(writer *out, const kit_workload *workload, const box *b, size_t i) {
  bool is_string = workload->is_string[b->attribute[i]];
  put_u8(out, is_string ? 2 : 1);  // EQUALS or RANGE
  put_u16(out, i);
  if (!is_string) {
    put_f64(out, b->low[i]);
    put_f64(out, b->high[i]);
    return;
  }
  const char *text = workload->strings[(size_t)b->low[i]];
  put_u32(out, strlen(text));
  put(out, text, strlen(text));
}

static size_t write_filter(uint8_t *bytes, const kit_workload *workload, uint32_t subscription) {
  writer out = {bytes};
  box b = box_of(workload, subscription);
  const uint8_t header[] = {'S', 'F', SPINNEY_FILTER_VERSION, 0};
  put(&out, header, sizeof header);
  put_u16(&out, b.n);
  for (size_t i = 0; i < b.n; i++) {
    const char *name = workload->names[b.attribute[i]];
    put_u16(&out, strlen(name));
    put(&out, name, strlen(name));
  }
  put_u16(&out, 1);  // boxes
  put_u8(&out, b.n);
  for (size_t i = 0; i < b.n; i++) put_predicate(&out, workload, &b, i);
  return (size_t)(out.at - bytes);
}

// ---- events

static spinney_value value_of(const kit_engine *engine, size_t attribute, double value) {
  spinney_value out = {.attribute = engine->attributes[attribute], .type = SPINNEY_NUMBER, .number = value};
  if (engine->workload->is_string[attribute]) {
    const char *text = engine->workload->strings[(size_t)value];
    out = (spinney_value){out.attribute, SPINNEY_STRING, 0, text, strlen(text)};
  }
  return out;
}

static void make_values(kit_engine *engine) {
  const kit_workload *workload = engine->workload;
  size_t n = workload->n_attributes;
  engine->values = kit_alloc(workload->n_events * n, sizeof *engine->values);
  for (size_t i = 0; i < workload->n_events * n; i++)
    engine->values[i] = value_of(engine, i % n, workload->values[i]);
}

// ---- the engine

void kit_engine_open(kit_engine *engine, const kit_workload *workload) {
  spinney_error error;
  *engine = (kit_engine){.workload = workload};
  check(spinney_matcher_new(NULL, &engine->matcher, &error), &error);
  check(spinney_reader_new(engine->matcher, &engine->reader, &error), &error);
  for (size_t i = 0; i < workload->n_attributes; i++) {
    const char *name = workload->names[i];
    check(spinney_attribute(engine->matcher, name, strlen(name), &engine->attributes[i], &error), &error);
  }
  engine->filter = kit_alloc(MAX_FILTER_BYTES, 1);
  make_values(engine);
}

void kit_engine_close(kit_engine *engine) {
  spinney_reader_free(engine->reader);
  spinney_matcher_free(engine->matcher);
  free(engine->values);
  free(engine->filter);
}

void kit_engine_add(kit_engine *engine, uint32_t subscription) {
  spinney_error error;
  size_t length = write_filter(engine->filter, engine->workload, subscription);
  check(spinney_add(engine->matcher, subscription, engine->filter, length, &error), &error);
}

void kit_engine_remove(kit_engine *engine, uint32_t subscription) {
  spinney_error error;
  check(spinney_remove(engine->matcher, subscription, &error), &error);
}

size_t kit_engine_match(kit_engine *engine, size_t event, const uint32_t **ids) {
  spinney_error error;
  size_t n = engine->workload->n_attributes, found;
  check(spinney_match(engine->reader, engine->values + event * n, n, ids, &found, &error), &error);
  return found;
}
