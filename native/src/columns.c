// columns.c - what rows have, laid out as Arrow has it. Where texts and entries end is in their offsets alone, so that
// rows are taken back by counting fewer of them.

#include "columns.h"

#include <string.h>

static double *doubles(const spinney_scratch *scratch) { return (double *)(void *)scratch->bytes; }
static int32_t *offsets(const spinney_scratch *scratch) { return (int32_t *)(void *)scratch->bytes; }

// As a function that is not called where there is room: it is asked for each value.
static bool reserve(spinney_scratch *scratch, size_t size) {
  return size <= scratch->size || spinney_scratch_reserve(scratch, size);
}

// Sets a bit of which there may be old ones, and clears those after it in its byte.
static void put_bit(spinney_scratch *bits, size_t at, bool bit) {
  uint8_t before = at % 8 ? bits->bytes[at / 8] & (uint8_t)((1U << at % 8) - 1) : 0;
  bits->bytes[at / 8] = (uint8_t)(before | (unsigned)bit << at % 8);
}

// ---- Making and freeing ----------------------------------------------------------------------------------------

typedef void each_scratch(spinney_columns *c, spinney_scratch *scratch);

static void each_of_texts(spinney_columns *c, spinney_texts *some, each_scratch *work) {
  work(c, &some->offsets);
  work(c, &some->bytes);
}

static void for_each(spinney_columns *c, each_scratch *work) {
  each_of_texts(c, &c->ids, work);
  each_of_texts(c, &c->types, work);
  work(c, &c->valid_ids);
  for (int i = 0; i < SPINNEY_ROW_FIXED; i++) work(c, &c->valid[i]);
  for (int i = 0; i < SPINNEY_ROW_TYPE; i++) work(c, &c->doubles[i]);
  for (int i = 0; i < SPINNEY_MAPS; i++) {
    work(c, &c->maps[i].offsets);
    work(c, &c->maps[i].items);
    each_of_texts(c, &c->maps[i].keys, work);
    each_of_texts(c, &c->maps[i].text_items, work);
  }
  work(c, &c->written);
  work(c, &c->unescaped);
}

static void join(spinney_columns *c, spinney_scratch *scratch) { scratch->memory = &c->memory; }

static void leave(spinney_columns *c, spinney_scratch *scratch) {
  (void)c;
  spinney_scratch_free(scratch);
}

static bool begin(spinney_scratch *scratch) {
  if (!reserve(scratch, sizeof(int32_t))) return false;
  offsets(scratch)[0] = 0;
  return true;
}

static bool begin_all(spinney_columns *c) {
  bool done = begin(&c->ids.offsets) && begin(&c->types.offsets);
  for (int i = 0; i < SPINNEY_MAPS; i++) {
    spinney_entries *m = &c->maps[i];
    done = done && begin(&m->offsets) && begin(&m->keys.offsets) && begin(&m->text_items.offsets);
  }
  return done;
}

spinney_status spinney_columns_new(const spinney_allocator *allocator, size_t most, spinney_columns **columns,
                                   spinney_error *error) {
  spinney_memory memory;
  spinney_memory_init(&memory, allocator);
  spinney_columns *c = spinney_resize(&memory, NULL, 0, sizeof *c);
  if (!c) return spinney_fail_memory(error);
  *c = (spinney_columns){.most = most < INT32_MAX ? most : INT32_MAX};
  spinney_memory_init(&c->memory, allocator);
  for_each(c, join);
  if (!begin_all(c)) {
    spinney_columns_free(c);
    return spinney_fail_memory(error);
  }
  *columns = c;
  return SPINNEY_OK;
}

void spinney_columns_free(spinney_columns *c) {
  if (!c) return;
  for_each(c, leave);
  spinney_resize(&c->memory, c->row_keys, c->keys_capacity * sizeof *c->row_keys, 0);
  spinney_resize(&c->memory, c->values, c->values_capacity * sizeof *c->values, 0);
  c->memory.allocator.resize(c->memory.allocator.context, c, 0);
}

size_t spinney_columns_rows(const spinney_columns *c) { return c->rows; }

// There may be entries of a row that did not get done, too.
void spinney_columns_keep(spinney_columns *c, size_t rows) {
  if (rows < c->rows) c->rows = rows;
  for (int i = 0; i < SPINNEY_MAPS; i++) c->maps[i].count = (size_t)offsets(&c->maps[i].offsets)[c->rows];
}

// ---- One row ---------------------------------------------------------------------------------------------------

static bool room_for_offset(spinney_scratch *scratch, size_t n) { return reserve(scratch, (n + 2) * sizeof(int32_t)); }

// Makes room for so many bytes after the first n texts, and for one offset more.
static spinney_status text_room(const spinney_columns *c, spinney_texts *some, size_t n, size_t length, char **room) {
  size_t start = (size_t)offsets(&some->offsets)[n];
  if (length > c->most - start) return SPINNEY_FULL;
  if (!reserve(&some->bytes, start + length + 1) || !room_for_offset(&some->offsets, n)) return SPINNEY_NO_MEMORY;
  offsets(&some->offsets)[n + 1] = (int32_t)(start + length);
  *room = (char *)some->bytes.bytes + start;
  return SPINNEY_OK;
}

static void copy(char *to, const char *text, size_t length) {
  if (length) memcpy(to, text, length);  // of nothing the text may be NULL
}

static spinney_status put_text(const spinney_columns *c, spinney_texts *some, size_t n, const char *text,
                               size_t length) {
  char *room;
  spinney_status status = text_room(c, some, n, length, &room);
  if (status == SPINNEY_OK) copy(room, text, length);
  return status;
}

static spinney_status put_valid(const spinney_columns *c, spinney_scratch *bits, bool valid) {
  if (!reserve(bits, c->rows / 8 + 1)) return SPINNEY_NO_MEMORY;
  put_bit(bits, c->rows, valid);
  return SPINNEY_OK;
}

// ---- ids

enum { MOST_DIGITS = 20 };

static size_t write_digits(uint64_t number, char *end) {
  char *at = end;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  return (size_t)(end - at);
}

static spinney_status put_id(spinney_columns *c, const spinney_id *id) {
  char digits[MOST_DIGITS], *room;
  size_t count = write_digits(id->number, digits + MOST_DIGITS);
  spinney_status status = text_room(c, &c->ids, c->rows, id->prefix_length + count, &room);
  if (status != SPINNEY_OK) return status;
  copy(room, id->prefix, id->prefix_length);
  copy(room + id->prefix_length, digits + MOST_DIGITS - count, count);
  return put_valid(c, &c->valid_ids, true);
}

// ---- maps

static spinney_entries *entries_for(spinney_columns *c, const spinney_value *value) {
  switch (value->type) {
    case SPINNEY_NUMBER: return &c->maps[SPINNEY_NUMBERS];
    case SPINNEY_STRING: return &c->maps[SPINNEY_TEXTS];
    default: return &c->maps[SPINNEY_FLAGS];
  }
}

static spinney_status put_item(const spinney_columns *c, spinney_entries *m, const spinney_value *value) {
  size_t n = m->count;
  if (value->type == SPINNEY_STRING) return put_text(c, &m->text_items, n, value->text, value->length);
  bool number = value->type == SPINNEY_NUMBER;
  if (!reserve(&m->items, number ? (n + 1) * sizeof(double) : n / 8 + 1)) return SPINNEY_NO_MEMORY;
  if (number) doubles(&m->items)[n] = value->number;
  else put_bit(&m->items, n, value->number != 0);
  return SPINNEY_OK;
}

static spinney_status put_entry(spinney_columns *c, spinney_entries *m, const spinney_row_key *key, size_t name_length,
                                const spinney_value *value) {
  if (m->count == c->most) return SPINNEY_FULL;
  const char *name = (const char *)c->written.bytes + key->name;
  spinney_status status = put_text(c, &m->keys, m->count, name, name_length);
  if (status == SPINNEY_OK) status = put_item(c, m, value);
  if (status == SPINNEY_OK) m->count++;
  return status;
}

static spinney_status put_in_maps(spinney_columns *c, const spinney_row_key *key, const spinney_value *value) {
  spinney_status status = put_entry(c, entries_for(c, value), key, key->name_length, value);
  bool unit = value->type == SPINNEY_STRING && key->unit_of != SPINNEY_NONE &&
              c->values[key->unit_of].type == SPINNEY_NUMBER;
  if (!unit || status != SPINNEY_OK) return status;
  return put_entry(c, &c->maps[SPINNEY_UNITS], key, key->name_length - SPINNEY_UNIT_SUFFIX_LENGTH, value);
}

static spinney_status end_entries(spinney_columns *c) {
  for (int i = 0; i < SPINNEY_MAPS; i++) {
    spinney_entries *m = &c->maps[i];
    if (!room_for_offset(&m->offsets, c->rows)) return SPINNEY_NO_MEMORY;
    offsets(&m->offsets)[c->rows + 1] = (int32_t)m->count;
  }
  return SPINNEY_OK;
}

// ---- all columns

static spinney_status put_fixed(spinney_columns *c, spinney_row_place place, const spinney_value *value) {
  spinney_status status = put_valid(c, &c->valid[place], value);
  if (status != SPINNEY_OK) return status;
  if (place == SPINNEY_ROW_TYPE)
    return put_text(c, &c->types, c->rows, value ? value->text : NULL, value ? value->length : 0);
  if (!reserve(&c->doubles[place], (c->rows + 1) * sizeof(double))) return SPINNEY_NO_MEMORY;
  doubles(&c->doubles[place])[c->rows] = value ? value->number : 0.0;
  return SPINNEY_OK;
}

static spinney_status end_row(spinney_columns *c, const spinney_value *const *fixed) {
  spinney_status status = SPINNEY_OK;
  for (int i = 0; i < SPINNEY_ROW_FIXED && status == SPINNEY_OK; i++) {
    status = put_fixed(c, (spinney_row_place)i, fixed[i]);
  }
  if (status == SPINNEY_OK) status = end_entries(c);
  if (status == SPINNEY_OK) c->rows++;
  return status;
}

spinney_status spinney_columns_put(spinney_columns *c, const spinney_id *id) {
  const spinney_value *fixed[SPINNEY_ROW_FIXED] = {NULL};
  spinney_status status = put_id(c, id);
  for (uint32_t i = 0; i < c->n_keys && status == SPINNEY_OK; i++) {
    const spinney_row_key *key = &c->row_keys[i];
    const spinney_value *value = &c->values[i];
    if (key->place == SPINNEY_ROW_SKIPPED || value->type == SPINNEY_NULL) continue;
    if (key->place == SPINNEY_ROW_IN_MAP) status = put_in_maps(c, key, value);
    else fixed[key->place] = value;
  }
  return status == SPINNEY_OK ? end_row(c, fixed) : status;
}

static spinney_status put_nothing(spinney_columns *c) {
  static const spinney_value *const nothing[SPINNEY_ROW_FIXED] = {NULL};
  spinney_status status = put_text(c, &c->ids, c->rows, NULL, 0);
  if (status == SPINNEY_OK) status = put_valid(c, &c->valid_ids, false);
  return status == SPINNEY_OK ? end_row(c, nothing) : status;
}

spinney_status spinney_columns_fail(spinney_error *error, spinney_status status) {
  if (status == SPINNEY_NO_MEMORY) return spinney_fail_memory(error);
  return spinney_fail(error, status, 0, "too many rows for one batch");
}

spinney_status spinney_columns_skip(spinney_columns *c, size_t rows, spinney_error *error) {
  size_t before = c->rows;
  for (size_t i = 0; i < rows; i++) {
    spinney_status status = put_nothing(c);
    if (status == SPINNEY_OK) continue;
    spinney_columns_keep(c, before);
    return spinney_columns_fail(error, status);
  }
  return SPINNEY_OK;
}

// ---- Giving ----------------------------------------------------------------------------------------------------

static spinney_buffer buffer(const spinney_scratch *scratch, size_t length) {
  return (spinney_buffer){scratch->bytes, length};
}

static size_t bits(size_t count) { return count / 8 + (count % 8 != 0); }

static spinney_column texts_column(const spinney_texts *some, size_t n) {
  return (spinney_column){.offsets = buffer(&some->offsets, (n + 1) * sizeof(int32_t)),
                          .data = buffer(&some->bytes, (size_t)offsets(&some->offsets)[n])};
}

static spinney_column doubles_column(const spinney_scratch *some, size_t n) {
  return (spinney_column){.data = buffer(some, n * sizeof(double))};
}

static spinney_column items_column(const spinney_entries *m, int which) {
  if (which == SPINNEY_NUMBERS) return doubles_column(&m->items, m->count);
  if (which == SPINNEY_FLAGS) return (spinney_column){.data = buffer(&m->items, bits(m->count))};
  return texts_column(&m->text_items, m->count);
}

void spinney_columns_give(const spinney_columns *c, spinney_rows *rows) {
  size_t n = c->rows;
  *rows = (spinney_rows){.rows = n,
                         .id = texts_column(&c->ids, n),
                         .time = doubles_column(&c->doubles[SPINNEY_ROW_TIME], n),
                         .latitude = doubles_column(&c->doubles[SPINNEY_ROW_LAT], n),
                         .longitude = doubles_column(&c->doubles[SPINNEY_ROW_LONG], n),
                         .type = texts_column(&c->types, n)};
  rows->id.valid = buffer(&c->valid_ids, bits(n));
  rows->time.valid = buffer(&c->valid[SPINNEY_ROW_TIME], bits(n));
  rows->latitude.valid = buffer(&c->valid[SPINNEY_ROW_LAT], bits(n));
  rows->longitude.valid = buffer(&c->valid[SPINNEY_ROW_LONG], bits(n));
  rows->type.valid = buffer(&c->valid[SPINNEY_ROW_TYPE], bits(n));
  for (int i = 0; i < SPINNEY_MAPS; i++) {
    const spinney_entries *m = &c->maps[i];
    rows->maps[i] = (spinney_map){.entries = m->count,
                                  .offsets = buffer(&m->offsets, (n + 1) * sizeof(int32_t)),
                                  .keys = texts_column(&m->keys, m->count),
                                  .items = items_column(m, i)};
  }
}
