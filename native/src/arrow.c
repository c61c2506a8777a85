// The Arrow door: a struct of columns is the batch, a row is an event. Buffers are trusted to be as long as the
// interface says; what they hold is not.

#include <string.h>

#include "arrow_cell.h"
#include "internal.h"
#include "keys.h"
#include "utf8.h"

enum { ROWS_PER_TURN = 1024 };  // after so many, writers get a chance

// Maps bring attributes of their own: their entries. Their column's name means nothing.
typedef struct column {
  const struct ArrowArray *array;
  bool is_map;
  uint32_t attribute;      // or SPINNEY_NONE
  spinney_cells values;    // of the column, or of the map's entries
  spinney_cells map_keys;
} column;

typedef struct batch {
  const struct ArrowSchema *schema;
  const struct ArrowArray *array;
  spinney_reader *reader;
  spinney_door door;
  spinney_error *error;
  spinney_scratch memory;  // of columns
  column *columns;
  size_t n_columns;
  spinney_keys names;     // of the columns that are not maps, sorted
  spinney_keys row_keys;  // of the maps in one row, those that the event does not show
} batch;

static const char *name_of(const batch *b, size_t at) {
  const char *name = b->schema->children[at]->name;
  return name ? name : "";
}

enum { SHOWN = 48 };  // bytes of a name in a message

static int shown_length(const char *name) {
  return (int)spinney_utf8_shorten(name, strlen(name), SHOWN);
}

static spinney_status fail(const batch *b, size_t at, const char *what) {
  const char *name = name_of(b, at);
  return spinney_fail(b->error, SPINNEY_BAD_BATCH, at, "column %zu \"%.*s\": %s", at, shown_length(name), name, what);
}

static spinney_status fail_row(const batch *b, size_t at, int64_t row, const char *what) {
  const char *name = name_of(b, at);
  return spinney_fail(b->error, SPINNEY_BAD_BATCH, at, "row %lld, column %zu \"%.*s\": %s", (long long)row, at,
                      shown_length(name), name, what);
}

static spinney_status fail_repeated(const batch *b, int64_t row, const spinney_key *key) {
  return spinney_fail(b->error, SPINNEY_BAD_BATCH, key->position, "row %lld: \"%.*s\" is there twice", (long long)row,
                      (int)spinney_utf8_shorten(key->text, key->length, SHOWN), key->text);
}

// ---- columns

// A map is a list of structs of two.
static bool is_map_of_two(const struct ArrowSchema *schema, const struct ArrowArray *array) {
  return schema->n_children == 1 && array->n_children == 1 && schema->children[0]->n_children == 2 &&
         array->children[0]->n_children == 2 && !schema->dictionary;
}

static bool is_text(const spinney_cells *cells) {
  char format = cells->dictionary ? cells->dictionary : cells->format;
  return format == 'u' || format == 'U';
}

static spinney_status open_map(const batch *b, size_t at, column *column) {
  const struct ArrowSchema *schema = b->schema->children[at];
  if (!is_map_of_two(schema, column->array)) return fail(b, at, "a map that is not made of keys and values");
  struct ArrowSchema **types = schema->children[0]->children;
  struct ArrowArray **arrays = column->array->children[0]->children;
  column->is_map = true;
  column->attribute = SPINNEY_NONE;
  bool keys = spinney_cells_of(types[0], arrays[0], &column->map_keys) && is_text(&column->map_keys);
  if (!keys) return fail(b, at, "the keys of a map must be strings");
  if (spinney_cells_of(types[1], arrays[1], &column->values)) return SPINNEY_OK;
  return fail(b, at, "the values of a map must be numbers, strings or booleans");
}

static spinney_status open_column(batch *b, size_t at) {
  column *column = &b->columns[at];
  const struct ArrowSchema *schema = b->schema->children[at];
  memset(column, 0, sizeof *column);
  column->array = b->array->children[at];
  if (column->array->length < b->array->offset + b->array->length) return fail(b, at, "shorter than the batch");
  if (strcmp(schema->format, "+m") == 0) return open_map(b, at, column);
  if (strncmp(schema->format, "ts", 2) == 0) return fail(b, at, "a time is a number of seconds, not a timestamp");
  if (!spinney_cells_of(schema, column->array, &column->values)) {
    return fail(b, at, "its Arrow type is no number, string, boolean, dictionary of these or map");
  }
  spinney_key name = {.text = name_of(b, at), .position = at, .attribute = SPINNEY_NONE};
  name.length = strlen(name.text);
  return spinney_keys_add(&b->names, name) ? SPINNEY_OK : spinney_fail_memory(b->error);
}

static spinney_status open_columns(batch *b) {
  if (strcmp(b->schema->format, "+s") != 0) {
    return spinney_fail(b->error, SPINNEY_BAD_BATCH, 0, "a batch is a struct of columns, Arrow type +s");
  }
  if (b->schema->n_children != b->array->n_children) {
    return spinney_fail(b->error, SPINNEY_BAD_BATCH, 0, "the schema and the batch differ in their columns");
  }
  b->n_columns = (size_t)b->schema->n_children;
  if (!spinney_scratch_reserve(&b->memory, (b->n_columns + 1) * sizeof(column))) return spinney_fail_memory(b->error);
  b->columns = (column *)(void *)b->memory.bytes;
  for (size_t at = 0; at < b->n_columns; at++) {
    spinney_status status = open_column(b, at);
    if (status != SPINNEY_OK) return status;
  }
  const spinney_key *repeated = spinney_keys_repeated(&b->names, b->door.event);
  if (repeated) return spinney_fail_repeated(b->error, SPINNEY_BAD_BATCH, repeated);
  spinney_keys_sort(&b->names);
  return SPINNEY_OK;
}

// Attributes are found again after a pause: a filter may have come that names one more.
static void find_attributes(batch *b) {
  for (size_t at = 0; at < b->n_columns; at++) {
    const char *name = name_of(b, at);
    if (!b->columns[at].is_map) {
      b->columns[at].attribute = spinney_attribute_find(b->door.matcher, name, strlen(name));
    }
  }
}

// ---- rows

static spinney_status read_value(batch *b, size_t at, int64_t row) {
  const column *column = &b->columns[at];
  spinney_value value = {.attribute = column->attribute};
  const char *problem = spinney_cell_read(&column->values, b->array->offset + row, &value);
  if (problem) return fail_row(b, at, row, problem);
  if (value.attribute != SPINNEY_NONE && value.type != SPINNEY_NULL) spinney_event_set(b->door.event, &value);
  return SPINNEY_OK;
}

static spinney_status add_entry(batch *b, size_t at, int64_t row, const spinney_value *name, spinney_value *value) {
  spinney_key key = {name->text, name->length, at, spinney_attribute_find(b->door.matcher, name->text, name->length)};
  bool shown = key.attribute != SPINNEY_NONE && value->type != SPINNEY_NULL;
  value->attribute = key.attribute;
  bool repeated = spinney_keys_find(&b->names, name->text, name->length) != NULL;
  if (repeated || (shown && !spinney_event_set(b->door.event, value))) {
    return fail_repeated(b, row, &key);
  }
  return shown || spinney_keys_add(&b->row_keys, key) ? SPINNEY_OK : spinney_fail_memory(b->error);
}

static spinney_status read_entry(batch *b, size_t at, int64_t row, int64_t entry) {
  const column *column = &b->columns[at];
  const struct ArrowArray *entries = column->array->children[0];
  spinney_value name = {0}, value = {0};
  const char *problem = spinney_cell_read(&column->map_keys, entries->offset + entry, &name);
  if (!problem && name.type == SPINNEY_NULL) problem = "a map with a key that is null";
  if (!problem) problem = spinney_cell_read(&column->values, entries->offset + entry, &value);
  return problem ? fail_row(b, at, row, problem) : add_entry(b, at, row, &name, &value);
}

static spinney_status read_map(batch *b, size_t at, int64_t row) {
  const struct ArrowArray *map = b->columns[at].array;
  int64_t index = b->array->offset + row, start, end;
  if (spinney_cell_is_null(map, index)) return SPINNEY_OK;
  bool ordered = spinney_cell_span(map, index, false, &start, &end);
  if (!ordered || end > map->children[0]->length) return fail_row(b, at, row, "offsets out of order");
  for (int64_t entry = start; entry < end; entry++) {
    spinney_status status = read_entry(b, at, row, entry);
    if (status != SPINNEY_OK) return status;
  }
  return SPINNEY_OK;
}

static spinney_status read_row(batch *b, int64_t row) {
  if (spinney_cell_is_null(b->array, row)) return SPINNEY_OK;
  for (size_t at = 0; at < b->n_columns; at++) {
    spinney_status status = b->columns[at].is_map ? read_map(b, at, row) : read_value(b, at, row);
    if (status != SPINNEY_OK) return status;
  }
  const spinney_key *repeated = spinney_keys_repeated(&b->row_keys, b->door.event);
  return repeated ? fail_repeated(b, row, repeated) : SPINNEY_OK;
}

static spinney_status match_row(batch *b, int64_t row) {
  spinney_event_clear(b->door.event);
  b->row_keys.count = 0;
  spinney_status status = read_row(b, row);
  if (status == SPINNEY_OK) status = spinney_match_event(b->reader, b->error);
  return status == SPINNEY_OK ? spinney_end_event(b->reader, b->error) : status;
}

// *held says whether writers are still kept out afterwards.
static spinney_status match_rows(batch *b, bool *held) {
  find_attributes(b);
  for (int64_t row = 0; row < b->array->length; row++) {
    if (row > 0 && row % ROWS_PER_TURN == 0) {
      spinney_status status = spinney_reader_pause(b->reader, &b->door, b->error);
      *held = status == SPINNEY_OK;
      if (!*held) return status;
      find_attributes(b);
    }
    spinney_status status = match_row(b, row);
    if (status != SPINNEY_OK) return status;
  }
  return SPINNEY_OK;
}

static spinney_status match_batch(batch *b, spinney_matches *matches) {
  spinney_status status = spinney_reader_enter(b->reader, &b->door, b->error);
  if (status != SPINNEY_OK) return status;
  bool held = true;
  b->memory.memory = b->names.more.memory = b->row_keys.more.memory = b->door.text->memory;
  spinney_event_clear(b->door.event);
  status = open_columns(b);
  if (status == SPINNEY_OK) status = match_rows(b, &held);
  if (status == SPINNEY_OK) spinney_reader_matches(b->reader, matches);
  if (held) spinney_reader_leave(b->reader);
  spinney_scratch_free(&b->memory);
  spinney_scratch_free(&b->names.more);
  spinney_scratch_free(&b->row_keys.more);
  return status;
}

spinney_status spinney_match_arrow(spinney_reader *reader, const struct ArrowSchema *schema,
                                   const struct ArrowArray *array, spinney_matches *matches, spinney_error *error) {
  batch b = {.schema = schema, .array = array, .reader = reader, .error = error};
  return match_batch(&b, matches);
}
