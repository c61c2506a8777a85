// arrow_cell.h - single values of Arrow columns.

#ifndef SPINNEY_ARROW_CELL_H
#define SPINNEY_ARROW_CELL_H

#include "arrow_abi.h"
#include "internal.h"

// A column of numbers, booleans or strings. The letters are Arrow's own.
typedef struct spinney_cells {
  const struct ArrowArray *array;
  char format;      // one of "ncCsSiIlLefgbuU": of the values, or of the indexes into the dictionary
  char dictionary;  // the format of the dictionary's values, or 0
} spinney_cells;

// False if the column is of no such type; `array` is what belongs to `schema`.
bool spinney_cells_of(const struct ArrowSchema *schema, const struct ArrowArray *array, spinney_cells *cells);

// Whether a value is null. `index` counts from the array's offset.
bool spinney_cell_is_null(const struct ArrowArray *array, int64_t index);

// Start and end of an element of a list, map or string; false if they are not in order.
bool spinney_cell_span(const struct ArrowArray *array, int64_t index, bool large, int64_t *start, int64_t *end);

// Sets type, number, text and length. Gives what is wrong with the value, or NULL.
const char *spinney_cell_read(const spinney_cells *cells, int64_t index, spinney_value *value);

#endif
