// Columns: what becomes of rows of JSON, what is refused, and that nothing stays of that.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing_allocator.h"
#include "spinney.h"

static spinney_columns *columns;
static spinney_rows found;
static spinney_error column_error;

static void open_columns(size_t most) {
  CHECK(spinney_columns_new(NULL, most, &columns, &column_error) == SPINNEY_OK);
}

static void close_columns(void) { spinney_columns_free(columns); }

static spinney_status take_without(const char *json, uint64_t rows, const uint64_t *left_out, size_t n_left_out) {
  spinney_id_run run = {.prefix_length = 3, .first = 8, .rows = rows};
  return spinney_columns_take(columns, json, strlen(json), "m7:", &run, 1, left_out, n_left_out, &column_error);
}

static spinney_status take(const char *json, uint64_t rows) { return take_without(json, rows, NULL, 0); }

static bool refuses(const char *json, uint64_t rows, size_t position, const char *message) {
  bool refused = take(json, rows) == SPINNEY_BAD_EVENT && column_error.status == SPINNEY_BAD_EVENT;
  return refused && column_error.position == position && strstr(column_error.message, message);
}

// ---- looking at what is given

static void give(void) { spinney_columns_give(columns, &found); }

static int32_t offset(const spinney_buffer *offsets, size_t at) {
  int32_t value;
  memcpy(&value, offsets->bytes + at * sizeof value, sizeof value);
  return value;
}

static double number_at(const spinney_column *column, size_t at) {
  double value;
  memcpy(&value, column->data.bytes + at * sizeof value, sizeof value);
  return value;
}

static bool bit(const spinney_buffer *bits, size_t at) { return bits->bytes[at / 8] >> at % 8 & 1; }

static bool text_is(const spinney_column *column, size_t at, const char *text) {
  size_t start = (size_t)offset(&column->offsets, at), end = (size_t)offset(&column->offsets, at + 1);
  return end - start == strlen(text) && memcmp(column->data.bytes + start, text, end - start) == 0;
}

static bool entries_are(int map, size_t row, int32_t from, int32_t to) {
  const spinney_buffer *offsets = &found.maps[map].offsets;
  return offset(offsets, row) == from && offset(offsets, row + 1) == to;
}

// ---- what becomes of rows

static void reserved_attributes_have_columns_of_their_own(void) {
  open_columns(SIZE_MAX);
  CHECK(take("[{\"id\":\"x\",\"source\":5,\"time\":1.5,\"lat\":-0,\"long\":-0.0,\"type\":\"air\"},{}]", 2) == SPINNEY_OK);
  give();
  CHECK(found.rows == 2 && spinney_columns_rows(columns) == 2);
  CHECK(text_is(&found.id, 0, "m7:8") && text_is(&found.id, 1, "m7:9"));
  CHECK(number_at(&found.time, 0) == 1.5 && text_is(&found.type, 0, "air"));
  CHECK(1 / number_at(&found.latitude, 0) > 0 && 1 / number_at(&found.longitude, 0) < 0);
  CHECK(bit(&found.time.valid, 0) && !bit(&found.time.valid, 1) && !bit(&found.type.valid, 1));
  CHECK(bit(&found.id.valid, 1) && text_is(&found.type, 1, ""));
  for (int i = 0; i < SPINNEY_MAPS; i++) CHECK(found.maps[i].entries == 0 && entries_are(i, 1, 0, 0));
  close_columns();
}

static void all_others_are_in_maps_by_type(void) {
  open_columns(SIZE_MAX);
  CHECK(take("[{\"n\":1,\"\\u0061\":\"\\n\",\"t\":true,\"f\":false,\"z\":null},{\"n\":2}]", 2) == SPINNEY_OK);
  give();
  const spinney_map *numbers = &found.maps[SPINNEY_NUMBERS], *flags = &found.maps[SPINNEY_FLAGS];
  CHECK(entries_are(SPINNEY_NUMBERS, 0, 0, 1) && entries_are(SPINNEY_NUMBERS, 1, 1, 2));
  CHECK(text_is(&numbers->keys, 1, "n") && number_at(&numbers->items, 1) == 2);
  CHECK(text_is(&found.maps[SPINNEY_TEXTS].keys, 0, "a") && text_is(&found.maps[SPINNEY_TEXTS].items, 0, "\n"));
  CHECK(flags->entries == 2 && bit(&flags->items.data, 0) && !bit(&flags->items.data, 1));
  close_columns();
}

static void units_are_those_of_numbers_of_the_row(void) {
  open_columns(SIZE_MAX);
  CHECK(take("[{\"a_unit\":\"m\",\"a\":1,\"lat_unit\":\"x\",\"lat\":1,\"b_unit\":\"y\"},"
             "{\"a_unit\":\"m\",\"a\":\"no number\",\"lat_unit\":\"x\",\"lat\":1,\"b_unit\":\"y\"}]", 2) == SPINNEY_OK);
  give();
  const spinney_map *units = &found.maps[SPINNEY_UNITS];
  CHECK(units->entries == 1 && entries_are(SPINNEY_UNITS, 0, 0, 1) && entries_are(SPINNEY_UNITS, 1, 1, 1));
  CHECK(text_is(&units->keys, 0, "a") && text_is(&units->items, 0, "m"));
  CHECK(found.maps[SPINNEY_TEXTS].entries == 7);
  close_columns();
}

static void units_are_found_among_numbers_in_any_order(void) {
  open_columns(SIZE_MAX);
  CHECK(take("[{\"ccc\":1,\"a\":2,\"bb\":3,\"bb_unit\":\"y\",\"ccc_unit\":\"x\",\"a_unit\":\"z\"}]", 1) == SPINNEY_OK);
  give();
  const spinney_map *units = &found.maps[SPINNEY_UNITS];
  CHECK(units->entries == 3 && text_is(&units->keys, 0, "bb") && text_is(&units->keys, 1, "ccc"));
  CHECK(text_is(&units->keys, 2, "a") && text_is(&units->items, 2, "z"));
  close_columns();
}

static void rows_alike_and_rows_that_depart_follow_one_another(void) {
  open_columns(SIZE_MAX);
  CHECK(take("[{\"a\":1,\"b\":2},{\"a\":3,\"b\":4},{\"a\":5},{\"a\":6,\"b\":7},{\"a\" :8,\"b\":9},{\"b\":0,\"a\":1}]", 6) ==
        SPINNEY_OK);
  CHECK(take("[{\"b\":0,\"a\":1}]", 1) == SPINNEY_OK);
  give();
  static const double expected[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 0, 1};
  const spinney_map *numbers = &found.maps[SPINNEY_NUMBERS];
  CHECK(numbers->entries == sizeof expected / sizeof *expected);
  for (size_t i = 0; i < numbers->entries; i++) CHECK(number_at(&numbers->items, i) == expected[i]);
  CHECK(text_is(&numbers->keys, 8, "b") && text_is(&numbers->keys, 9, "b") && text_is(&numbers->keys, 10, "a"));
  close_columns();
}

// A row that is looked into has memory made for its many keys.
static void rows_alike_are_not_looked_into(void) {
  enum { KEYS = 40, ROWS = 10, REQUESTS = 1000 };
  char json[ROWS * KEYS * 12] = "[";
  for (int row = 0; row < ROWS; row++) {
    for (int i = 0; i < KEYS; i++) sprintf(json + strlen(json), "%s\"k%d\":1", i ? "," : row ? "},{" : "{", i);
  }
  strcat(json, "}]");
  failing_allocator failing = {.left = -1};
  spinney_allocator allocator = {failing_resize, &failing};
  CHECK(spinney_columns_new(&allocator, SIZE_MAX, &columns, NULL) == SPINNEY_OK && take(json, ROWS) == SPINNEY_OK);
  spinney_columns_keep(columns, 0);
  failing.left = REQUESTS;
  CHECK(take(json, ROWS) == SPINNEY_OK && failing.left == REQUESTS);
  CHECK(take("[{\"a\":1}]", 1) == SPINNEY_OK && take(json, ROWS) == SPINNEY_OK && failing.left < REQUESTS);
  close_columns();
}

static void rows_are_left_out_and_ids_go_on(void) {
  static const uint64_t left_out[] = {0, 2};
  open_columns(SIZE_MAX);
  CHECK(take_without("[{\"a\":1},{\"a\":2},{\"a\":3},{\"a\":4}]", 4, left_out, 2) == SPINNEY_OK);
  give();
  CHECK(found.rows == 2 && text_is(&found.id, 0, "m7:9") && text_is(&found.id, 1, "m7:11"));
  CHECK(number_at(&found.maps[SPINNEY_NUMBERS].items, 1) == 4);
  close_columns();
}

static void ids_are_those_of_the_runs(void) {
  const spinney_id_run runs[] = {{1, UINT64_MAX, 1}, {0, 0, 0}, {2, 99, 2}};
  const char *json = "[{},{},{}]";
  open_columns(SIZE_MAX);
  CHECK(spinney_columns_take(columns, json, strlen(json), "abc", runs, 3, NULL, 0, NULL) == SPINNEY_OK);
  give();
  CHECK(text_is(&found.id, 0, "a18446744073709551615") && text_is(&found.id, 1, "bc99") && text_is(&found.id, 2, "bc100"));
  close_columns();
}

static void rows_of_nothing_are_null(void) {
  open_columns(SIZE_MAX);
  CHECK(take("[{\"a\":1,\"time\":1}]", 1) == SPINNEY_OK && spinney_columns_skip(columns, 2, NULL) == SPINNEY_OK);
  give();
  CHECK(found.rows == 3 && !bit(&found.id.valid, 2) && !bit(&found.time.valid, 2) && bit(&found.id.valid, 0));
  CHECK(entries_are(SPINNEY_NUMBERS, 2, 1, 1));
  close_columns();
}

static void what_is_forgotten_leaves_room_for_others(void) {
  open_columns(SIZE_MAX);
  CHECK(take("[{\"a\":true,\"b\":1},{\"a\":true,\"b\":2}]", 2) == SPINNEY_OK);
  spinney_columns_keep(columns, 1);
  CHECK(take("[{\"a\":false}]", 1) == SPINNEY_OK);
  give();
  CHECK(found.rows == 2 && found.maps[SPINNEY_NUMBERS].entries == 1 && found.maps[SPINNEY_FLAGS].entries == 2);
  CHECK(bit(&found.maps[SPINNEY_FLAGS].items.data, 0) && !bit(&found.maps[SPINNEY_FLAGS].items.data, 1));
  spinney_columns_keep(columns, 5);
  CHECK(spinney_columns_rows(columns) == 2);
  spinney_columns_keep(columns, 0);
  give();
  CHECK(found.rows == 0 && found.id.data.length == 0 && found.maps[SPINNEY_NUMBERS].entries == 0);
  close_columns();
}

// ---- what is refused

static void what_is_no_array_of_objects_is_refused(void) {
  CHECK(refuses("", 0, 0, "expected an array"));
  CHECK(refuses("{}", 1, 0, "expected an array"));
  CHECK(refuses("[1]", 1, 1, "expected an object"));
  CHECK(refuses("[{}", 1, 3, "closing bracket"));
  CHECK(refuses("[{},]", 1, 4, "more rows"));
  CHECK(refuses("[{}] x", 1, 5, "expected the end"));
  CHECK(refuses("[{\"a\":1", 1, 7, "closing brace"));
  CHECK(refuses("[{\"a\" 1}]", 1, 6, "colon"));
  CHECK(refuses("[{\"a\":[]}]", 1, 6, "none is nested"));
  CHECK(refuses("[{\"a\":1},{\"a\":1e999}]", 2, 14, "too large"));
}

static void other_counts_than_those_of_the_runs_are_refused(void) {
  CHECK(refuses("[]", 1, 2, "fewer rows"));
  CHECK(refuses("[{}]", 2, 4, "fewer rows"));
  CHECK(refuses("[{},{}]", 1, 4, "more rows"));
  CHECK(take("[]", 0) == SPINNEY_OK);
}

static void keys_that_are_there_twice_are_refused_each_time(void) {
  for (int i = 0; i < 2; i++) CHECK(refuses("[{\"a\":1,\"\\u0061\":2}]", 1, 8, "twice"));
  CHECK(refuses("[{\"a\":1},{\"a\":1,\"a\":2}]", 2, 16, "twice"));
}

static void reserved_attributes_of_another_type_are_refused(void) {
  CHECK(refuses("[{\"time\":\"noon\"}]", 1, 9, "reserved"));
  CHECK(refuses("[{\"lat\":true}]", 1, 8, "reserved"));
  CHECK(refuses("[{\"type\":1}]", 1, 9, "reserved"));
  CHECK(refuses("[{\"type\":\"a\"},{\"type\":1}]", 2, 22, "reserved"));
  CHECK(take("[{\"type\":null,\"lat\":null}]", 1) == SPINNEY_OK);
}

static void rows_that_are_left_out_are_checked(void) {
  static const uint64_t left_out[] = {0};
  CHECK(take_without("[{\"lat\":true}]", 1, left_out, 1) == SPINNEY_BAD_EVENT);
}

static void of_what_is_refused_nothing_stays(void) {
  CHECK(take("[{\"a\":1,\"s\":\"x\",\"type\":\"y\"}]", 1) == SPINNEY_OK);
  CHECK(take("[{\"a\":1,\"s\":\"x\",\"type\":\"y\"},{\"a\":2},{\"a\":}]", 3) == SPINNEY_BAD_EVENT);
  give();
  CHECK(found.rows == 1 && found.maps[SPINNEY_NUMBERS].entries == 1 && found.maps[SPINNEY_TEXTS].entries == 1);
  CHECK(found.type.data.length == 1 && found.id.data.length == strlen("m7:8"));
}

static void refusals(void) {
  open_columns(SIZE_MAX);
  what_is_no_array_of_objects_is_refused();
  other_counts_than_those_of_the_runs_are_refused();
  keys_that_are_there_twice_are_refused_each_time();
  reserved_attributes_of_another_type_are_refused();
  rows_that_are_left_out_are_checked();
  spinney_columns_keep(columns, 0);
  of_what_is_refused_nothing_stays();
  close_columns();
}

// ---- bounds

static void more_than_the_most_is_refused_whole(void) {
  open_columns(9);
  CHECK(take("[{\"a\":\"four\"}]", 1) == SPINNEY_OK);
  CHECK(take("[{\"b\":\"five5\"}]", 1) == SPINNEY_OK);
  CHECK(take("[{},{\"c\":\"\"}]", 2) == SPINNEY_FULL && column_error.status == SPINNEY_FULL);
  give();
  CHECK(found.rows == 2 && found.maps[SPINNEY_TEXTS].entries == 2);
  spinney_columns_keep(columns, 0);
  CHECK(take("[{\"c\":\"\"}]", 1) == SPINNEY_OK);
  close_columns();
}

static void entries_without_a_byte_are_counted_too(void) {
  const spinney_id_run run = {0, 0, 1};
  const char *json = "[{\"\":true,\"a\":true}]";
  open_columns(3);
  CHECK(spinney_columns_take(columns, json, strlen(json), NULL, &run, 1, NULL, 0, NULL) == SPINNEY_OK);
  CHECK(spinney_columns_take(columns, json, strlen(json), NULL, &run, 1, NULL, 0, NULL) == SPINNEY_FULL);
  close_columns();
}

static void many_keys_take_no_time(void) {
  enum { KEYS = 100000 };
  char *json = malloc(KEYS * 40 + 8), *at = json;
  for (int i = 0; i < KEYS; i++) at += sprintf(at, "%s\"k%d\":1,\"k%d_unit\":\"m\"", i ? "," : "[{", i, i);
  strcpy(at, "}]");
  open_columns(SIZE_MAX);
  CHECK(take(json, 1) == SPINNEY_OK);
  give();
  CHECK(found.maps[SPINNEY_UNITS].entries == KEYS && text_is(&found.maps[SPINNEY_UNITS].keys, KEYS - 1, "k99999"));
  close_columns();
  free(json);
}

static void without_memory_it_says_so_and_goes_on(void) {
  char json[2000] = "[{\"a\":\"\\n\",\"b\":true,\"c_unit\":\"m\",\"c\":1";
  for (int i = 0; i < 40; i++) sprintf(json + strlen(json), ",\"k%d\":%d", i, i);
  strcat(json, "},{\"time\":1}]");
  long left = 0;
  for (bool done = false; !done; left++) {
    failing_allocator failing = {.left = left};
    spinney_allocator allocator = {failing_resize, &failing};
    if (spinney_columns_new(&allocator, SIZE_MAX, &columns, &column_error) != SPINNEY_OK) continue;
    spinney_status taken = take(json, 2), skipped = spinney_columns_skip(columns, 2000, &column_error);
    done = taken == SPINNEY_OK && skipped == SPINNEY_OK;
    CHECK(done || taken == SPINNEY_NO_MEMORY || skipped == SPINNEY_NO_MEMORY);
    CHECK(spinney_columns_rows(columns) == (taken ? 0 : 2) + (skipped ? 0U : 2000));
    failing.left = -1;
    spinney_columns_keep(columns, 0);
    CHECK(take("[{\"n\":1}]", 1) == SPINNEY_OK);
    give();
    CHECK(found.maps[SPINNEY_NUMBERS].entries == 1 && number_at(&found.maps[SPINNEY_NUMBERS].items, 0) == 1);
    close_columns();
  }
  CHECK(left > 30);
}

int main(void) {
  reserved_attributes_have_columns_of_their_own();
  all_others_are_in_maps_by_type();
  units_are_those_of_numbers_of_the_row();
  units_are_found_among_numbers_in_any_order();
  rows_alike_and_rows_that_depart_follow_one_another();
  rows_alike_are_not_looked_into();
  rows_are_left_out_and_ids_go_on();
  ids_are_those_of_the_runs();
  rows_of_nothing_are_null();
  what_is_forgotten_leaves_room_for_others();
  refusals();
  more_than_the_most_is_refused_whole();
  entries_without_a_byte_are_counted_too();
  many_keys_take_no_time();
  without_memory_it_says_so_and_goes_on();
  spinney_columns_free(NULL);
  return CHECK_RESULT;
}
