// columns.c - rows of JSON as Arrow columns. Rows of one record have mostly the same keys in the same order, so a row is
// held against the keys of the one before, byte for byte, and looked into only where it departs from them.

#include "json_value.h"
#include "keys.h"
#include "memory.h"

// ---- What is gathered ------------------------------------------------------------------------------------------

typedef struct texts {
  spinney_scratch offsets;  // int32_t: where each begins, and where the last one ends
  spinney_scratch bytes;
} texts;

typedef struct map {
  spinney_scratch offsets;  // int32_t: where the entries of each row begin
  texts keys;
  texts text_items;
  spinney_scratch items;  // doubles, or a bit each, if they are not texts
  size_t entries;
} map;

#define UNIT_SUFFIX "_unit"
enum { UNIT_SUFFIX_LENGTH = sizeof UNIT_SUFFIX - 1 };

typedef enum place { TIME, LAT, LONG, TYPE, FIXED, SKIPPED = FIXED, IN_MAP } place;

// A key of the row before. Offsets are into written.
typedef struct row_key {
  size_t start, length;  // as it was written, with the comma before and the colon after it
  size_t name, name_length;
  place place;
  uint32_t unit_of;  // the key of the number whose unit this could be, or SPINNEY_NONE
} row_key;

struct spinney_columns {
  spinney_memory memory;
  size_t most;  // bytes of texts, or entries, of a column
  size_t rows;
  texts ids, types;
  spinney_scratch valid_ids, valid[FIXED];
  spinney_scratch doubles[TYPE];
  map maps[SPINNEY_MAPS];
  row_key *row_keys;
  spinney_value *values;  // of a row, by its keys
  uint32_t n_keys, keys_capacity, values_capacity;
  spinney_scratch written;
  size_t written_used;
  spinney_scratch unescaped;
};

static double *doubles(const spinney_scratch *scratch) { return (double *)(void *)scratch->bytes; }
static int32_t *offsets(const spinney_scratch *scratch) { return (int32_t *)(void *)scratch->bytes; }

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

static void each_of_texts(spinney_columns *c, texts *some, each_scratch *work) {
  work(c, &some->offsets);
  work(c, &some->bytes);
}

static void for_each(spinney_columns *c, each_scratch *work) {
  each_of_texts(c, &c->ids, work);
  each_of_texts(c, &c->types, work);
  work(c, &c->valid_ids);
  for (int i = 0; i < FIXED; i++) work(c, &c->valid[i]);
  for (int i = 0; i < TYPE; i++) work(c, &c->doubles[i]);
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
    map *m = &c->maps[i];
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
  for (int i = 0; i < SPINNEY_MAPS; i++) c->maps[i].entries = (size_t)offsets(&c->maps[i].offsets)[c->rows];
}

// ---- One row ---------------------------------------------------------------------------------------------------

typedef struct reading {
  spinney_json in;
  spinney_columns *columns;
  spinney_keys keys;
  const char *prefix;  // of the run that the next row is of
  const spinney_id_run *run, *runs_end;
  uint64_t at;  // in that run
  const uint64_t *left_out, *left_out_end;
} reading;

static bool full(reading *r) {
  r->in.status = spinney_fail(r->in.error, SPINNEY_FULL, 0, "too many rows for one batch");
  return false;
}

static bool no_memory(reading *r) { return spinney_json_fail_memory(&r->in); }

static bool offsets_begin(reading *r, spinney_scratch *scratch, size_t n) {
  return reserve(scratch, (n + 2) * sizeof(int32_t)) || no_memory(r);
}

// Room for so many bytes after the first n texts, and for one offset more; NULL: there is none.
static char *text_room(reading *r, texts *some, size_t n, size_t length) {
  size_t start = (size_t)offsets(&some->offsets)[n];
  if (length > r->columns->most - start) return full(r), NULL;
  if (!reserve(&some->bytes, start + length + 1) || !offsets_begin(r, &some->offsets, n)) return no_memory(r), NULL;
  offsets(&some->offsets)[n + 1] = (int32_t)(start + length);
  return (char *)some->bytes.bytes + start;
}

static void copy(char *to, const char *text, size_t length) {
  if (length) memcpy(to, text, length);  // of nothing the text may be NULL
}

static bool put_text(reading *r, texts *some, size_t n, const char *text, size_t length) {
  char *room = text_room(r, some, n, length);
  if (room) copy(room, text, length);
  return room;
}

static bool put_valid(reading *r, spinney_scratch *bits, bool valid) {
  size_t row = r->columns->rows;
  if (!reserve(bits, row / 8 + 1)) return no_memory(r);
  put_bit(bits, row, valid);
  return true;
}

// ---- ids

enum { MOST_DIGITS = 20 };

static size_t write_digits(uint64_t number, char *end) {
  char *at = end;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  return (size_t)(end - at);
}

static bool put_id(reading *r) {
  spinney_columns *c = r->columns;
  char digits[MOST_DIGITS];
  size_t prefix = (size_t)r->run->prefix_length, count = write_digits(r->run->first + r->at, digits + MOST_DIGITS);
  char *room = text_room(r, &c->ids, c->rows, prefix + count);
  if (!room) return false;
  copy(room, r->prefix, prefix);
  copy(room + prefix, digits + MOST_DIGITS - count, count);
  return put_valid(r, &c->valid_ids, true);
}

// ---- maps

static map *map_for(spinney_columns *c, const spinney_value *value) {
  switch (value->type) {
    case SPINNEY_NUMBER: return &c->maps[SPINNEY_NUMBERS];
    case SPINNEY_STRING: return &c->maps[SPINNEY_TEXTS];
    default: return &c->maps[SPINNEY_FLAGS];
  }
}

static bool put_item(reading *r, map *m, const spinney_value *value) {
  if (value->type == SPINNEY_STRING) return put_text(r, &m->text_items, m->entries, value->text, value->length);
  bool number = value->type == SPINNEY_NUMBER;
  if (!reserve(&m->items, number ? (m->entries + 1) * sizeof(double) : m->entries / 8 + 1)) return no_memory(r);
  if (number) doubles(&m->items)[m->entries] = value->number;
  else put_bit(&m->items, m->entries, value->number != 0);
  return true;
}

static bool put_entry(reading *r, map *m, const row_key *key, size_t name_length, const spinney_value *value) {
  spinney_columns *c = r->columns;
  if (m->entries == c->most) return full(r);
  const char *name = (const char *)c->written.bytes + key->name;
  if (!put_text(r, &m->keys, m->entries, name, name_length) || !put_item(r, m, value)) return false;
  m->entries++;
  return true;
}

static bool put_unit(reading *r, const row_key *key, const spinney_value *value) {
  spinney_columns *c = r->columns;
  if (key->unit_of == SPINNEY_NONE || c->values[key->unit_of].type != SPINNEY_NUMBER) return true;
  return put_entry(r, &c->maps[SPINNEY_UNITS], key, key->name_length - UNIT_SUFFIX_LENGTH, value);
}

static bool end_entries(reading *r) {
  spinney_columns *c = r->columns;
  for (int i = 0; i < SPINNEY_MAPS; i++) {
    map *m = &c->maps[i];
    if (!offsets_begin(r, &m->offsets, c->rows)) return false;
    offsets(&m->offsets)[c->rows + 1] = (int32_t)m->entries;
  }
  return true;
}

// ---- all columns

static bool put_fixed(reading *r, place place, const spinney_value *value) {
  spinney_columns *c = r->columns;
  if (!put_valid(r, &c->valid[place], value)) return false;
  if (place == TYPE) return put_text(r, &c->types, c->rows, value ? value->text : NULL, value ? value->length : 0);
  if (!reserve(&c->doubles[place], (c->rows + 1) * sizeof(double))) return no_memory(r);
  doubles(&c->doubles[place])[c->rows] = value ? value->number : 0.0;
  return true;
}

static bool end_row(reading *r, const spinney_value *const *fixed) {
  for (int i = 0; i < FIXED; i++) {
    if (!put_fixed(r, (place)i, fixed[i])) return false;
  }
  if (!end_entries(r)) return false;
  r->columns->rows++;
  return true;
}

// The values of a row that was read.
static bool put_row(reading *r) {
  spinney_columns *c = r->columns;
  const spinney_value *fixed[FIXED] = {NULL};
  for (uint32_t i = 0; i < c->n_keys; i++) {
    const row_key *key = &c->row_keys[i];
    const spinney_value *value = &c->values[i];
    if (key->place == SKIPPED || value->type == SPINNEY_NULL) continue;
    if (key->place < FIXED) {
      fixed[key->place] = value;
    } else if (!put_entry(r, map_for(c, value), key, key->name_length, value) ||
               (value->type == SPINNEY_STRING && !put_unit(r, key, value))) {
      return false;
    }
  }
  return put_id(r) && end_row(r, fixed);
}

static bool put_nothing(reading *r) {
  static const spinney_value *const nothing[FIXED] = {NULL};
  spinney_columns *c = r->columns;
  return put_text(r, &c->ids, c->rows, NULL, 0) && put_valid(r, &c->valid_ids, false) && end_row(r, nothing);
}

// ---- Reading ---------------------------------------------------------------------------------------------------

// An integer has no negative zero.
static void drop_sign_of_zero(const char *at, const char *end, spinney_value *value) {
  if (end - at == 2 && at[0] == '-' && at[1] == '0') value->number = 0.0;
}

static bool read_value(reading *r, place place, spinney_value *value) {
  const char *at = r->in.at;
  if (!spinney_json_value(&r->in, value)) return false;
  if (value->type == SPINNEY_NUMBER) drop_sign_of_zero(at, r->in.at, value);
  if (place >= FIXED || value->type == SPINNEY_NULL) return true;
  if (value->type == (place == TYPE ? SPINNEY_STRING : SPINNEY_NUMBER)) return true;
  return spinney_json_fail(&r->in, at, "a reserved attribute of a type that it does not have");
}

// A row with the keys of the one before, written alike: whether it is one.
static bool read_alike(reading *r) {
  const spinney_columns *c = r->columns;
  for (uint32_t i = 0; i < c->n_keys; i++) {
    const row_key *key = &c->row_keys[i];
    if ((size_t)(r->in.end - r->in.at) < key->length) return false;
    if (memcmp(r->in.at, c->written.bytes + key->start, key->length) != 0) return false;
    r->in.at += key->length;
    if (!read_value(r, key->place, &c->values[i])) return false;
  }
  return spinney_json_take(&r->in, '}');
}

// ---- a row that departs

static bool name_is(const spinney_slice *name, const char *word) {
  return name->length == strlen(word) && memcmp(name->text, word, name->length) == 0;
}

static place place_of(const spinney_slice *name) {
  if (name_is(name, "time")) return TIME;
  if (name_is(name, "lat")) return LAT;
  if (name_is(name, "long")) return LONG;
  if (name_is(name, "type")) return TYPE;
  return name_is(name, "id") || name_is(name, "source") ? SKIPPED : IN_MAP;
}

static size_t write(spinney_columns *c, const char *text, size_t length) {
  size_t start = c->written_used;
  copy((char *)c->written.bytes + start, text, length);
  c->written_used += length;
  return start;
}

// Keeps a key, as it was written from `quote` up to its colon.
static bool keep_key(reading *r, const char *quote, const spinney_slice *name) {
  spinney_columns *c = r->columns;
  uint32_t n = c->n_keys;
  spinney_key key = {name->text, name->length, (size_t)(quote - r->in.start), n};
  size_t length = (size_t)(r->in.at - quote);
  if (!spinney_grow(&c->memory, &c->row_keys, &c->keys_capacity, sizeof *c->row_keys, (size_t)n + 1) ||
      !spinney_grow(&c->memory, &c->values, &c->values_capacity, sizeof *c->values, (size_t)n + 1) ||
      !reserve(&c->written, c->written_used + 1 + length + name->length) || !spinney_keys_add(&r->keys, key)) {
    return no_memory(r);
  }
  row_key kept = {.length = length + (n > 0), .name_length = name->length, .place = place_of(name),
                  .unit_of = SPINNEY_NONE};
  kept.start = write(c, ",", n > 0);
  write(c, quote, length);
  kept.name = write(c, name->text, name->length);
  c->row_keys[c->n_keys++] = kept;
  return true;
}

static bool read_member(reading *r) {
  spinney_json_space(&r->in);
  const char *quote = r->in.at;
  spinney_slice name;
  if (!spinney_json_key(&r->in, &name) || !keep_key(r, quote, &name)) return false;
  spinney_json_space(&r->in);
  uint32_t last = r->columns->n_keys - 1;
  return read_value(r, r->columns->row_keys[last].place, &r->columns->values[last]);
}

static bool read_members(reading *r) {
  spinney_json_space(&r->in);
  if (spinney_json_take(&r->in, '}')) return true;
  do {
    if (!read_member(r)) return false;
    spinney_json_space(&r->in);
  } while (spinney_json_take(&r->in, ','));
  return spinney_json_take(&r->in, '}') ||
         spinney_json_fail(&r->in, r->in.at, "expected a comma or the closing brace");
}

static bool check_keys(reading *r) {
  const spinney_key *repeated = spinney_keys_repeated(&r->keys, NULL);
  if (repeated) r->in.status = spinney_fail_repeated(r->in.error, SPINNEY_BAD_EVENT, repeated);
  return !repeated;
}

static bool is_unit(const char *name, size_t length) {
  return length >= UNIT_SUFFIX_LENGTH &&
         memcmp(name + length - UNIT_SUFFIX_LENGTH, UNIT_SUFFIX, UNIT_SUFFIX_LENGTH) == 0;
}

// Finds for each key NAME_unit the key NAME.
static void find_units(reading *r) {
  spinney_columns *c = r->columns;
  bool sorted = false;
  for (uint32_t i = 0; i < c->n_keys; i++) {
    row_key *key = &c->row_keys[i];
    const char *name = (const char *)c->written.bytes + key->name;
    if (!is_unit(name, key->name_length)) continue;
    if (!sorted) spinney_keys_sort(&r->keys);
    sorted = true;
    const spinney_key *of = spinney_keys_find(&r->keys, name, key->name_length - UNIT_SUFFIX_LENGTH);
    if (of && c->row_keys[of->attribute].place == IN_MAP) key->unit_of = of->attribute;
  }
}

// Any row; its keys are what the next one is held against, if they are good.
static bool read_new(reading *r) {
  spinney_columns *c = r->columns;
  c->n_keys = 0;
  c->written_used = r->in.text_used = r->keys.count = 0;
  if (read_members(r) && check_keys(r)) {
    find_units(r);
    return true;
  }
  c->n_keys = 0;
  return false;
}

static bool read_row(reading *r) {
  spinney_json_space(&r->in);
  if (!spinney_json_take(&r->in, '{')) return spinney_json_fail(&r->in, r->in.at, "expected an object");
  const char *first = r->in.at;
  r->in.text_used = 0;
  if (read_alike(r)) return true;
  r->in.at = first;
  r->in.status = SPINNEY_OK;
  return read_new(r);
}

// ---- a record

// To the run of the next row; false: there is none.
static bool find_run(reading *r) {
  while (r->run < r->runs_end && r->at == r->run->rows) {
    r->prefix += r->run->prefix_length;
    r->run++;
    r->at = 0;
  }
  return r->run < r->runs_end;
}

static bool take_row(reading *r, uint64_t place) {
  if (!find_run(r)) return spinney_json_fail(&r->in, r->in.at, "more rows than the runs have");
  if (!read_row(r)) return false;
  bool left_out = r->left_out < r->left_out_end && *r->left_out == place;
  if (left_out) r->left_out++;
  if (!left_out && !put_row(r)) return false;
  r->at++;
  return true;
}

static bool take_rows(reading *r) {
  spinney_json_space(&r->in);
  if (spinney_json_take(&r->in, ']')) return true;
  uint64_t place = 0;
  do {
    if (!take_row(r, place++)) return false;
    spinney_json_space(&r->in);
  } while (spinney_json_take(&r->in, ','));
  return spinney_json_take(&r->in, ']') ||
         spinney_json_fail(&r->in, r->in.at, "expected a comma or the closing bracket");
}

static bool take_document(reading *r) {
  spinney_json_space(&r->in);
  if (!spinney_json_take(&r->in, '[')) return spinney_json_fail(&r->in, r->in.at, "expected an array of objects");
  if (!take_rows(r)) return false;
  spinney_json_space(&r->in);
  if (r->in.at != r->in.end) return spinney_json_fail(&r->in, r->in.at, "expected the end of the text");
  return !find_run(r) || spinney_json_fail(&r->in, r->in.at, "fewer rows than the runs have");
}

spinney_status spinney_columns_take(spinney_columns *c, const char *json, size_t length, const char *prefixes,
                                    const spinney_id_run *runs, size_t n_runs, const uint64_t *left_out,
                                    size_t n_left_out, spinney_error *error) {
  reading r;
  r.in = (spinney_json){.start = json, .at = json, .end = json + length, .text = &c->unescaped, .error = error};
  r.columns = c;
  r.keys.count = 0;
  r.keys.more = (spinney_scratch){.memory = &c->memory};
  r.prefix = prefixes;
  r.run = runs;
  r.runs_end = runs + n_runs;
  r.at = 0;
  r.left_out = left_out;
  r.left_out_end = left_out + n_left_out;
  size_t rows = c->rows;
  bool taken = take_document(&r);
  spinney_scratch_free(&r.keys.more);
  if (taken) return SPINNEY_OK;
  spinney_columns_keep(c, rows);
  return r.in.status;
}

spinney_status spinney_columns_skip(spinney_columns *c, size_t rows, spinney_error *error) {
  reading r;
  r.in = (spinney_json){.error = error};
  r.columns = c;
  size_t before = c->rows;
  for (size_t i = 0; i < rows; i++) {
    if (put_nothing(&r)) continue;
    spinney_columns_keep(c, before);
    return r.in.status;
  }
  return SPINNEY_OK;
}

// ---- Giving ----------------------------------------------------------------------------------------------------

static spinney_buffer buffer(const spinney_scratch *scratch, size_t length) {
  return (spinney_buffer){scratch->bytes, length};
}

static size_t bits(size_t count) { return count / 8 + (count % 8 != 0); }

static spinney_column texts_column(const texts *some, size_t n) {
  return (spinney_column){.offsets = buffer(&some->offsets, (n + 1) * sizeof(int32_t)),
                          .data = buffer(&some->bytes, (size_t)offsets(&some->offsets)[n])};
}

static spinney_column doubles_column(const spinney_scratch *some, size_t n) {
  return (spinney_column){.data = buffer(some, n * sizeof(double))};
}

static spinney_column items_column(const map *m, int which) {
  if (which == SPINNEY_NUMBERS) return doubles_column(&m->items, m->entries);
  if (which == SPINNEY_FLAGS) return (spinney_column){.data = buffer(&m->items, bits(m->entries))};
  return texts_column(&m->text_items, m->entries);
}

void spinney_columns_give(const spinney_columns *c, spinney_rows *rows) {
  size_t n = c->rows;
  *rows = (spinney_rows){.rows = n,
                         .id = texts_column(&c->ids, n),
                         .time = doubles_column(&c->doubles[TIME], n),
                         .latitude = doubles_column(&c->doubles[LAT], n),
                         .longitude = doubles_column(&c->doubles[LONG], n),
                         .type = texts_column(&c->types, n)};
  rows->id.valid = buffer(&c->valid_ids, bits(n));
  rows->time.valid = buffer(&c->valid[TIME], bits(n));
  rows->latitude.valid = buffer(&c->valid[LAT], bits(n));
  rows->longitude.valid = buffer(&c->valid[LONG], bits(n));
  rows->type.valid = buffer(&c->valid[TYPE], bits(n));
  for (int i = 0; i < SPINNEY_MAPS; i++) {
    const map *m = &c->maps[i];
    rows->maps[i] = (spinney_map){.entries = m->entries,
                                  .offsets = buffer(&m->offsets, (n + 1) * sizeof(int32_t)),
                                  .keys = texts_column(&m->keys, m->entries),
                                  .items = items_column(m, i)};
  }
}
