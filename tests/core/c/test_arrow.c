// The Arrow door: every type, nulls, offsets, dictionaries and maps, and what is refused where.

#include <stdint.h>

#include "arrow_abi.h"
#include "doors.h"
#include "failing_allocator.h"

enum { MAX_COLUMNS = 4, FOUND = 1, TEXT = 2, TRUTH = 4, PRESENT = 8 };

// ---- batches by hand

static struct ArrowSchema schema, column_schemas[MAX_COLUMNS], dictionary_schema, entries_schema, entry_schemas[2];
static struct ArrowSchema *schema_children[MAX_COLUMNS], *entries_child[1], *entry_children[2];
static struct ArrowArray batch, columns[MAX_COLUMNS], dictionary, entries, entry_arrays[2];
static struct ArrowArray *batch_children[MAX_COLUMNS], *entries_array_child[1], *entry_array_children[2];
static const void *buffers[MAX_COLUMNS][3], *dictionary_buffers[3], *entry_buffers[2][3], *no_buffers[1];

static void start(int64_t rows) {
  schema = (struct ArrowSchema){.format = "+s", .name = "", .children = schema_children};
  batch = (struct ArrowArray){.length = rows, .n_buffers = 1, .buffers = no_buffers, .children = batch_children};
}

static struct ArrowArray *add_column(const char *name, const char *format, const void *validity, const void *values,
                                     const void *data) {
  int64_t at = batch.n_children++;
  schema.n_children++;
  column_schemas[at] = (struct ArrowSchema){.format = format, .name = name};
  schema_children[at] = &column_schemas[at];
  buffers[at][0] = validity;
  buffers[at][1] = values;
  buffers[at][2] = data;
  columns[at] = (struct ArrowArray){
      .length = batch.offset + batch.length, .null_count = validity ? -1 : 0, .n_buffers = 3, .buffers = buffers[at]};
  batch_children[at] = &columns[at];
  return &columns[at];
}

static void add_dictionary(struct ArrowArray *column, const char *format, int64_t length, const void *values,
                           const void *data) {
  dictionary_schema = (struct ArrowSchema){.format = format, .name = ""};
  column_schemas[column - columns].dictionary = &dictionary_schema;
  dictionary_buffers[1] = values;
  dictionary_buffers[2] = data;
  dictionary = (struct ArrowArray){.length = length, .n_buffers = 3, .buffers = dictionary_buffers};
  column->dictionary = &dictionary;
}

// A column of maps from the texts in keys to the numbers in values.
static void add_map(const char *name, const int32_t *offsets, int64_t n_entries, const int32_t *key_offsets,
                    const char *keys, const double *values) {
  struct ArrowArray *map = add_column(name, "+m", NULL, offsets, NULL);
  struct ArrowSchema *map_schema = &column_schemas[map - columns];
  entry_schemas[0] = (struct ArrowSchema){.format = "u", .name = "key"};
  entry_schemas[1] = (struct ArrowSchema){.format = "g", .name = "value"};
  entries_schema = (struct ArrowSchema){.format = "+s", .name = "entries", .n_children = 2, .children = entry_children};
  entries = (struct ArrowArray){.length = n_entries, .n_buffers = 1, .buffers = no_buffers, .n_children = 2};
  entries.children = entry_array_children;
  for (int i = 0; i < 2; i++) {
    entry_children[i] = &entry_schemas[i];
    entry_array_children[i] = &entry_arrays[i];
    entry_arrays[i] = (struct ArrowArray){.length = n_entries, .n_buffers = 3, .buffers = entry_buffers[i]};
  }
  entry_buffers[0][1] = key_offsets;
  entry_buffers[0][2] = keys;
  entry_buffers[1][1] = values;
  entries_child[0] = &entries_schema;
  entries_array_child[0] = &entries;
  map_schema->n_children = map->n_children = 1;
  map_schema->children = entries_child;
  map->children = entries_array_child;
}

static spinney_status match(void) {
  return spinney_match_arrow(door_reader, &schema, &batch, &door_matches, &door_error);
}

static bool refuses(size_t column, const char *message) {
  return match() == SPINNEY_BAD_BATCH && door_error.position == column && strstr(door_error.message, message);
}

// n = 7, s = "yes", b = true, and p for whether it is there.
static void open_door(void) {
  CHECK(doors_open(NULL));
  CHECK(add_number(0, "n", 7.0));
  CHECK(add_text(1, "s", "yes"));
  CHECK(add_boolean(2, "b", 1));
  CHECK(add_present(3, "p"));
}

// ---- columns

static bool second_is_seven(const char *format, const void *values) {
  start(3);
  add_column("n", format, NULL, values, NULL);
  return match() == SPINNEY_OK && door_matches.events == 3 && event_matches(0, 0) && event_matches(1, FOUND) &&
         event_matches(2, 0);
}

static void numbers_of_every_width_come_through(void) {
  CHECK(second_is_seven("c", (const int8_t[]){-7, 7, 6}));
  CHECK(second_is_seven("C", (const uint8_t[]){200, 7, 6}));
  CHECK(second_is_seven("s", (const int16_t[]){-7, 7, 6}));
  CHECK(second_is_seven("S", (const uint16_t[]){60000, 7, 6}));
  CHECK(second_is_seven("i", (const int32_t[]){-7, 7, 6}));
  CHECK(second_is_seven("I", (const uint32_t[]){4000000000u, 7, 6}));
  CHECK(second_is_seven("l", (const int64_t[]){-7, 7, INT64_MAX}));
  CHECK(second_is_seven("L", (const uint64_t[]){UINT64_MAX, 7, 6}));
  CHECK(second_is_seven("e", (const uint16_t[]){0xC700, 0x4700, 0x4600}));
  CHECK(second_is_seven("f", (const float[]){-7.0f, 7.0f, 6.0f}));
  CHECK(second_is_seven("g", (const double[]){-7.0, 7.0, 6.0}));
}

static void half_precision_is_exact(void) {
  const uint16_t halves[] = {0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8000};
  const double numbers[] = {0x1p-24, 1023 * 0x1p-24, 0x1p-14, 65504.0, 0.0};
  for (uint32_t i = 0; i < 5; i++) {
    CHECK(add_number(16 + i, "half", numbers[i]));
    start(1);
    add_column("half", "e", NULL, &halves[i], NULL);
    CHECK(match() == SPINNEY_OK && event_matches(0, UINT32_C(1) << (16 + i)));
    CHECK(spinney_remove(door_matcher, 16 + i, NULL) == SPINNEY_OK);
  }
}

static void integers_beyond_doubles_round_to_the_nearest(void) {
  CHECK(add_number(16, "wide", 0x1p53));
  start(2);
  add_column("wide", "l", NULL, (const int64_t[]){(INT64_C(1) << 53) + 1, (INT64_C(1) << 53) + 3}, NULL);
  CHECK(match() == SPINNEY_OK && event_matches(0, UINT32_C(1) << 16) && event_matches(1, 0));
  CHECK(spinney_remove(door_matcher, 16, NULL) == SPINNEY_OK);
}

static void strings_and_booleans_come_through(void) {
  start(3);
  add_column("s", "u", NULL, (const int32_t[]){0, 2, 5, 5}, "noyes");
  add_column("b", "b", NULL, (const uint8_t[]){0x06}, NULL);
  CHECK(match() == SPINNEY_OK && event_matches(0, 0) && event_matches(1, TEXT | TRUTH) && event_matches(2, TRUTH));
  start(1);
  add_column("s", "U", NULL, (const int64_t[]){2, 5}, "noyes");
  CHECK(match() == SPINNEY_OK && event_matches(0, TEXT));
}

static void nulls_are_missing(void) {
  start(2);
  add_column("n", "c", (const uint8_t[]){0x02}, (const int8_t[]){7, 7}, NULL);
  columns[0].n_buffers = 2;
  add_column("p", "n", NULL, NULL, NULL)->n_buffers = 0;
  CHECK(match() == SPINNEY_OK && event_matches(0, 0) && event_matches(1, FOUND));
}

static void offsets_of_batch_and_column_add_up(void) {
  start(1);
  batch.offset = 1;
  add_column("n", "c", (const uint8_t[]){0x0C}, (const int8_t[]){7, 7, 0, 7}, NULL)->offset = 2;
  add_column("b", "b", NULL, (const uint8_t[]){0x02}, NULL);
  CHECK(match() == SPINNEY_OK && door_matches.events == 1 && event_matches(0, FOUND | TRUTH));
}

static void a_row_that_is_null_has_nothing(void) {
  const void *validity[] = {(const uint8_t[]){0x02}};
  start(2);
  batch.buffers = validity;
  batch.null_count = 1;
  add_column("n", "c", NULL, (const int8_t[]){7, 7}, NULL);
  CHECK(match() == SPINNEY_OK && event_matches(0, 0) && event_matches(1, FOUND));
}

static void buffers_need_no_alignment(void) {
  char bytes[17] = {0};
  double seven = 7.0;
  memcpy(bytes + 9, &seven, sizeof seven);
  start(2);
  add_column("n", "g", NULL, bytes + 1, NULL);
  CHECK(match() == SPINNEY_OK && event_matches(1, FOUND));
}

static void dictionaries_are_looked_up(void) {
  start(3);
  add_dictionary(add_column("s", "c", (const uint8_t[]){0x03}, (const int8_t[]){0, 1, 1}, NULL), "u", 2,
                 (const int32_t[]){0, 2, 5}, "noyes");
  CHECK(match() == SPINNEY_OK && event_matches(0, 0) && event_matches(1, TEXT) && event_matches(2, 0));
  add_dictionary(&columns[0], "g", 2, (const double[]){7.0, 1.0}, NULL);
  column_schemas[0].name = "n";
  CHECK(match() == SPINNEY_OK && event_matches(0, FOUND) && event_matches(1, 0));
}

// ---- maps

static void maps_bring_attributes(void) {
  start(3);
  add_map("more", (const int32_t[]){0, 1, 3, 3}, 3, (const int32_t[]){0, 1, 2, 3}, "npz", (const double[]){7, 1, 1});
  CHECK(match() == SPINNEY_OK && event_matches(0, FOUND) && event_matches(1, PRESENT) && event_matches(2, 0));
}

static void a_name_twice_is_refused(void) {
  start(1);
  add_column("q", "c", NULL, (const int8_t[]){1}, NULL);
  add_column("q", "c", NULL, (const int8_t[]){1}, NULL);
  CHECK(refuses(1, "\"q\" is there twice"));
  for (int at = 0; at < 3; at++) {
    static const char *const names[] = {"m", "n", "q"};
    start(1);
    for (int i = 0; i < 3; i++) add_column(names[i], "n", NULL, NULL, NULL)->n_buffers = 0;
    add_map("more", (const int32_t[]){0, 1}, 1, (const int32_t[]){0, 1}, names[at], (const double[]){7});
    CHECK(refuses(3, "is there twice"));
  }
  start(1);
  add_map("more", (const int32_t[]){0, 2}, 2, (const int32_t[]){0, 1, 2}, "nn", (const double[]){7, 7});
  CHECK(refuses(0, "row 0: \"n\" is there twice"));
  entry_buffers[0][2] = "zz";
  CHECK(refuses(0, "row 0: \"z\" is there twice"));
}

static void maps_that_are_broken_are_refused(void) {
  start(1);
  add_map("more", (const int32_t[]){0, 2}, 1, (const int32_t[]){0, 1, 2}, "nz", (const double[]){7, 7});
  CHECK(refuses(0, "offsets out of order"));
  entries.length = 2;
  CHECK(match() == SPINNEY_OK);
  entry_schemas[0].format = "i";
  CHECK(refuses(0, "keys of a map must be strings"));
  entry_schemas[0].format = "u";
  entry_schemas[1].format = "+l";
  CHECK(refuses(0, "values of a map must be"));
  entry_schemas[1].format = "g";
  entries_schema.n_children = 1;
  CHECK(refuses(0, "not made of keys and values"));
  entries_schema.n_children = 2;
  const uint8_t no_key = 0;
  entry_buffers[0][0] = &no_key;
  entry_arrays[0].null_count = 2;
  CHECK(refuses(0, "a key that is null"));
  entry_buffers[0][0] = NULL;
}

// ---- what is refused

static void types_that_are_no_values_are_refused(void) {
  const char *const formats[] = {"z", "tdD", "w:4", "+l", "d:10,2", "vu", ""};
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    start(1);
    add_column("ok", "n", NULL, NULL, NULL)->n_buffers = 0;
    add_column("bad", formats[i], NULL, NULL, NULL);
    CHECK(refuses(1, "column 1 \"bad\": its Arrow type"));
  }
  start(1);
  add_column("time", "tsu:UTC", NULL, NULL, NULL);
  CHECK(refuses(0, "a time is a number of seconds"));
}

static void batches_that_are_no_batches_are_refused(void) {
  start(1);
  schema.format = "i";
  CHECK(refuses(0, "struct of columns"));
  start(1);
  schema.n_children = 1;
  CHECK(refuses(0, "differ in their columns"));
  start(2);
  add_column("n", "c", NULL, (const int8_t[]){7}, NULL)->length = 1;
  CHECK(refuses(0, "shorter than the batch"));
}

static void numbers_that_are_not_finite_are_refused_even_unasked(void) {
  start(2);
  add_column("unasked", "g", NULL, (const double[]){1.0, NAN}, NULL);
  CHECK(refuses(0, "row 1, column 0 \"unasked\": not a finite number"));
  start(1);
  add_column("f", "f", NULL, (const float[]){INFINITY}, NULL);
  CHECK(refuses(0, "not a finite number"));
  start(1);
  add_column("e", "e", NULL, (const uint16_t[]){0xFC00}, NULL);
  CHECK(refuses(0, "not a finite number"));
}

static void strings_that_are_broken_are_refused(void) {
  start(1);
  add_column("s", "u", NULL, (const int32_t[]){0, 2}, "\xC3(");
  CHECK(refuses(0, "not UTF-8"));
  start(1);
  add_column("s", "u", NULL, (const int32_t[]){2, 1}, "ab");
  CHECK(refuses(0, "offsets out of order"));
  start(1);
  add_dictionary(add_column("s", "c", NULL, (const int8_t[]){-1}, NULL), "u", 1, (const int32_t[]){0, 1}, "a");
  CHECK(refuses(0, "outside the dictionary"));
}

// ---- many rows, little memory

static void long_batches_give_every_row(void) {
  enum { ROWS = 3000 };
  static double values[ROWS];
  for (int i = 0; i < ROWS; i++) values[i] = i % 10;
  start(ROWS);
  add_column("n", "g", NULL, values, NULL);
  CHECK(match() == SPINNEY_OK && door_matches.events == ROWS);
  CHECK(door_matches.offsets[ROWS] == ROWS / 10);
  CHECK(event_matches(2997, FOUND) && event_matches(2998, 0) && event_matches(7, FOUND));
}

static void without_memory_it_says_so_and_goes_on(void) {
  static int32_t key_offsets[101], offsets[] = {0, 100};
  static char keys[200];
  static double values[100];
  for (int i = 0; i < 100; i++) {
    keys[2 * i] = (char)('0' + i / 10);
    keys[2 * i + 1] = (char)('0' + i % 10);
    key_offsets[i + 1] = 2 * i + 2;
  }
  start(1);
  add_map("more", offsets, 100, key_offsets, keys, values);
  for (long left = 0; left < 300; left++) {
    failing_allocator failing = {.left = left};
    spinney_allocator allocator = {failing_resize, &failing};
    if (doors_open(&allocator) && add_present(3, "07")) {
      spinney_status status = match();
      CHECK(status == SPINNEY_OK || status == SPINNEY_NO_MEMORY);
      failing.left = -1;
      CHECK(match() == SPINNEY_OK && event_matches(0, PRESENT));
    }
    doors_close();
  }
}

int main(void) {
  open_door();
  numbers_of_every_width_come_through();
  half_precision_is_exact();
  integers_beyond_doubles_round_to_the_nearest();
  strings_and_booleans_come_through();
  nulls_are_missing();
  offsets_of_batch_and_column_add_up();
  a_row_that_is_null_has_nothing();
  buffers_need_no_alignment();
  dictionaries_are_looked_up();
  maps_bring_attributes();
  a_name_twice_is_refused();
  maps_that_are_broken_are_refused();
  types_that_are_no_values_are_refused();
  batches_that_are_no_batches_are_refused();
  numbers_that_are_not_finite_are_refused_even_unasked();
  strings_that_are_broken_are_refused();
  long_batches_give_every_row();
  doors_close();
  without_memory_it_says_so_and_goes_on();
  return CHECK_RESULT;
}
