// Any bytes as the rows of a record: taken, or refused with a position within them and nothing left behind. What is there
// then is as Arrow has it, and as many rows whatever was there before.

#include <stdlib.h>
#include <string.h>

#include "run_files.h"
#include "spinney.h"

static void require(int holds) {
  if (!holds) abort();
}

static const char before[] = "[{\"a\":1,\"b\":\"x\",\"a_unit\":\"m\",\"type\":\"t\",\"lat\":0.5,\"f\":true}]";

static spinney_status take(spinney_columns *columns, const char *json, size_t size, uint64_t rows, spinney_error *error) {
  static const uint64_t left_out[] = {1};
  spinney_id_run run = {2, 9, rows};
  return spinney_columns_take(columns, json, size, "m:", &run, 1, left_out, 1, error);
}

static int32_t offset(const spinney_buffer *offsets, size_t at) {
  int32_t value;
  memcpy(&value, offsets->bytes + at * sizeof value, sizeof value);
  return value;
}

static void check_offsets(const spinney_buffer *offsets, size_t count, size_t end) {
  require(offsets->length == (count + 1) * sizeof(int32_t) && offset(offsets, 0) == 0);
  for (size_t i = 0; i < count; i++) require(offset(offsets, i) <= offset(offsets, i + 1));
  require((size_t)offset(offsets, count) == end);
}

static void check_rows(const spinney_rows *rows) {
  check_offsets(&rows->id.offsets, rows->rows, rows->id.data.length);
  check_offsets(&rows->type.offsets, rows->rows, rows->type.data.length);
  for (int i = 0; i < SPINNEY_MAPS; i++) {
    const spinney_map *map = &rows->maps[i];
    check_offsets(&map->offsets, rows->rows, map->entries);
    check_offsets(&map->keys.offsets, map->entries, map->keys.data.length);
  }
}

// Takes the rows, counted by trying, after others or none; how many there are then.
static size_t take_after(const char *others, const char *json, size_t size) {
  enum { MOST_ROWS = 40 };
  spinney_columns *columns;
  spinney_rows rows;
  require(spinney_columns_new(NULL, 1 << 20, &columns, NULL) == SPINNEY_OK);
  if (others) require(take(columns, others, strlen(others), 1, NULL) == SPINNEY_OK);
  size_t there = spinney_columns_rows(columns);
  for (uint64_t count = 0; count < MOST_ROWS && spinney_columns_rows(columns) == there; count++) {
    spinney_error error = {0};
    spinney_status status = take(columns, json, size, count, &error);
    if (status != SPINNEY_OK) require(error.position <= size && spinney_columns_rows(columns) == there);
    spinney_columns_give(columns, &rows);
    check_rows(&rows);
  }
  size_t found = rows.rows - there;
  spinney_columns_free(columns);
  return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *json = size ? (const char *)data : "";
  require(take_after(NULL, json, size) == take_after(before, json, size));
  return 0;
}
