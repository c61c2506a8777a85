// columns.h - what columns gather, and rows that are put after one another.

#ifndef SPINNEY_COLUMNS_H
#define SPINNEY_COLUMNS_H

#include "memory.h"

typedef struct spinney_texts {
  spinney_scratch offsets;  // int32_t: where each begins, and where the last one ends
  spinney_scratch bytes;
} spinney_texts;

typedef struct spinney_entries {
  spinney_scratch offsets;  // int32_t: where the entries of each row begin
  spinney_texts keys;
  spinney_texts text_items;
  spinney_scratch items;  // doubles, or a bit each, if they are not texts
  size_t count;
} spinney_entries;

#define SPINNEY_UNIT_SUFFIX "_unit"
enum { SPINNEY_UNIT_SUFFIX_LENGTH = sizeof SPINNEY_UNIT_SUFFIX - 1 };

// Where the values of a key go.
typedef enum spinney_row_place {
  SPINNEY_ROW_TIME,
  SPINNEY_ROW_LAT,
  SPINNEY_ROW_LONG,
  SPINNEY_ROW_TYPE,
  SPINNEY_ROW_FIXED,                        // those before it have columns of their own
  SPINNEY_ROW_SKIPPED = SPINNEY_ROW_FIXED,  // nowhere
  SPINNEY_ROW_IN_MAP
} spinney_row_place;

// A key of the row before. Offsets are into written.
typedef struct spinney_row_key {
  size_t start, length;  // as it was written, with the comma before and the colon after it
  size_t name, name_length;
  spinney_row_place place;
  uint32_t unit_of;  // the key of the number whose unit this could be, or SPINNEY_NONE
} spinney_row_key;

struct spinney_columns {
  spinney_memory memory;
  size_t most;  // bytes of texts, or entries, of a column
  size_t rows;
  spinney_texts ids, types;
  spinney_scratch valid_ids, valid[SPINNEY_ROW_FIXED];
  spinney_scratch doubles[SPINNEY_ROW_TYPE];  // of those before it
  spinney_entries maps[SPINNEY_MAPS];
  spinney_row_key *row_keys;
  spinney_value *values;  // of a row, by its keys
  uint32_t n_keys, keys_capacity, values_capacity;
  spinney_scratch written;  // keys, as they were written and as they are meant
  size_t written_used;
  spinney_scratch unescaped;  // strings of one row
};

typedef struct spinney_id {
  const char *prefix;
  size_t prefix_length;
  uint64_t number;
} spinney_id;

// Puts the values, by their keys, after the other rows. Fails with SPINNEY_FULL or SPINNEY_NO_MEMORY; what there is
// then of the row is taken back by spinney_columns_keep.
spinney_status spinney_columns_put(spinney_columns *columns, const spinney_id *id);

// Fills *error with what such a failure means, and returns it.
spinney_status spinney_columns_fail(spinney_error *error, spinney_status status);

#endif
