// columns_read.c - rows of JSON for columns. Rows of one record have mostly the same keys in the same order, so a row
// is held against the keys of the one before, byte for byte, and looked into only where it departs from them.

#include "columns.h"
#include "json_value.h"
#include "keys.h"

typedef struct reading {
  spinney_json in;
  spinney_columns *columns;
  spinney_keys keys;
  const char *prefix;         // of the run that the next row is of
  const spinney_id_run *run;  // that run
  size_t runs;                // from it on
  uint64_t at;                // the row in it
  const uint64_t *left_out;   // the next one
  size_t n_left_out;          // from it on
} reading;

// ---- One row ---------------------------------------------------------------------------------------------------

// An integer has no negative zero.
static void drop_sign_of_zero(const char *at, const char *end, spinney_value *value) {
  if (end - at == 2 && at[0] == '-' && at[1] == '0') value->number = 0.0;
}

static bool read_value(reading *r, spinney_row_place place, spinney_value *value) {
  const char *at = r->in.at;
  if (!spinney_json_value(&r->in, value)) return false;
  if (value->type == SPINNEY_NUMBER) drop_sign_of_zero(at, r->in.at, value);
  if (place >= SPINNEY_ROW_FIXED || value->type == SPINNEY_NULL) return true;
  if (value->type == (place == SPINNEY_ROW_TYPE ? SPINNEY_STRING : SPINNEY_NUMBER)) return true;
  return spinney_json_fail(&r->in, at, "a reserved attribute of a type that it does not have");
}

// A row with the keys of the one before, written alike: whether it is one.
static bool read_alike(reading *r) {
  const spinney_columns *c = r->columns;
  for (uint32_t i = 0; i < c->n_keys; i++) {
    const spinney_row_key *key = &c->row_keys[i];
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

static spinney_row_place place_of(const spinney_slice *name) {
  if (name_is(name, "time")) return SPINNEY_ROW_TIME;
  if (name_is(name, "lat")) return SPINNEY_ROW_LAT;
  if (name_is(name, "long")) return SPINNEY_ROW_LONG;
  if (name_is(name, "type")) return SPINNEY_ROW_TYPE;
  return name_is(name, "id") || name_is(name, "source") ? SPINNEY_ROW_SKIPPED : SPINNEY_ROW_IN_MAP;
}

static size_t write(spinney_columns *c, const char *text, size_t length) {
  size_t start = c->written_used;
  if (length) memcpy(c->written.bytes + start, text, length);
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
      !spinney_scratch_reserve(&c->written, c->written_used + 1 + length + name->length) ||
      !spinney_keys_add(&r->keys, key)) {
    return spinney_json_fail_memory(&r->in);
  }
  spinney_row_key kept = {.length = length + (n > 0), .place = place_of(name), .unit_of = SPINNEY_NONE};
  kept.start = write(c, ",", n > 0);
  write(c, quote, length);
  kept.name = write(c, name->text, name->length);
  kept.name_length = name->length;
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
  return length >= SPINNEY_UNIT_SUFFIX_LENGTH &&
         memcmp(name + length - SPINNEY_UNIT_SUFFIX_LENGTH, SPINNEY_UNIT_SUFFIX, SPINNEY_UNIT_SUFFIX_LENGTH) == 0;
}

// Finds for each key NAME_unit the key NAME.
static void find_units(reading *r) {
  spinney_columns *c = r->columns;
  bool sorted = false;
  for (uint32_t i = 0; i < c->n_keys; i++) {
    spinney_row_key *key = &c->row_keys[i];
    const char *name = (const char *)c->written.bytes + key->name;
    if (!is_unit(name, key->name_length)) continue;
    if (!sorted) spinney_keys_sort(&r->keys);
    sorted = true;
    const spinney_key *of = spinney_keys_find(&r->keys, name, key->name_length - SPINNEY_UNIT_SUFFIX_LENGTH);
    if (of && c->row_keys[of->attribute].place == SPINNEY_ROW_IN_MAP) key->unit_of = of->attribute;
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
  while (r->runs && r->at == r->run->rows) {
    if (r->run->prefix_length) r->prefix += r->run->prefix_length;
    r->run++;
    r->runs--;
    r->at = 0;
  }
  return r->runs;
}

static bool put_row(reading *r) {
  const spinney_id id = {r->prefix, (size_t)r->run->prefix_length, r->run->first + r->at};
  spinney_status status = spinney_columns_put(r->columns, &id);
  if (status != SPINNEY_OK) r->in.status = spinney_columns_fail(r->in.error, status);
  return status == SPINNEY_OK;
}

static bool is_left_out(reading *r, uint64_t place) {
  if (!r->n_left_out || *r->left_out != place) return false;
  r->left_out++;
  r->n_left_out--;
  return true;
}

static bool take_row(reading *r, uint64_t place) {
  if (!find_run(r)) return spinney_json_fail(&r->in, r->in.at, "more rows than the runs have");
  if (!read_row(r)) return false;
  if (!is_left_out(r, place) && !put_row(r)) return false;
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
  r.runs = n_runs;
  r.at = 0;
  r.left_out = left_out;
  r.n_left_out = n_left_out;
  size_t rows = c->rows;
  bool taken = take_document(&r);
  spinney_scratch_free(&r.keys.more);
  if (taken) return SPINNEY_OK;
  spinney_columns_keep(c, rows);
  return r.in.status;
}

