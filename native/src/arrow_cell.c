#include "arrow_cell.h"

#include <math.h>
#include <string.h>

#include "utf8.h"

// ---- types

static char flat_format(const char *format) {
  bool known = format[0] != 0 && format[1] == 0 && strchr("ncCsSiIlLefgbuU", format[0]);
  return known ? format[0] : 0;
}

static bool is_index(char format) { return format != 0 && strchr("cCsSiIlL", format); }

bool spinney_cells_of(const struct ArrowSchema *schema, const struct ArrowArray *array, spinney_cells *cells) {
  *cells = (spinney_cells){.array = array, .format = flat_format(schema->format)};
  if (!schema->dictionary) return cells->format != 0;
  cells->dictionary = flat_format(schema->dictionary->format);
  return is_index(cells->format) && cells->dictionary != 0 && !schema->dictionary->dictionary && array->dictionary;
}

// ---- bits and offsets

static bool bit(const void *bitmap, int64_t index) { return ((const uint8_t *)bitmap)[index / 8] >> (index % 8) & 1; }

bool spinney_cell_is_null(const struct ArrowArray *array, int64_t index) {
  if (array->n_buffers == 0) return false;
  return array->null_count != 0 && array->buffers[0] && !bit(array->buffers[0], array->offset + index);
}

static int64_t offset_at(const struct ArrowArray *array, int64_t index, bool large) {
  const char *offsets = array->buffers[1];
  int32_t narrow;
  int64_t wide;
  if (large) {
    memcpy(&wide, offsets + index * (int64_t)sizeof wide, sizeof wide);
    return wide;
  }
  memcpy(&narrow, offsets + index * (int64_t)sizeof narrow, sizeof narrow);
  return narrow;
}

bool spinney_cell_span(const struct ArrowArray *array, int64_t index, bool large, int64_t *start, int64_t *end) {
  *start = offset_at(array, array->offset + index, large);
  *end = offset_at(array, array->offset + index + 1, large);
  return 0 <= *start && *start <= *end;
}

// ---- numbers

// IEEE half precision: 5 bits of exponent, 10 of fraction. Every one is a double.
static double half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  if (exponent == 31) size = HUGE_VAL;  // or not a number: refused all the same
  return bits >> 15 ? -size : size;
}

// Buffers should be aligned, but a column that was mapped from a file may not be.
#define LOAD(type)                                                                         \
  do {                                                                                     \
    type number;                                                                           \
    memcpy(&number, (const char *)values + index * (int64_t)sizeof number, sizeof number); \
    return (double)number;                                                                 \
  } while (0)

static uint16_t half_at(const void *values, int64_t index) {
  uint16_t bits;
  memcpy(&bits, (const char *)values + index * (int64_t)sizeof bits, sizeof bits);
  return bits;
}

static double number_at(char format, const void *values, int64_t index) {
  switch (format) {
    case 'c': LOAD(int8_t);
    case 'C': LOAD(uint8_t);
    case 's': LOAD(int16_t);
    case 'S': LOAD(uint16_t);
    case 'i': LOAD(int32_t);
    case 'I': LOAD(uint32_t);
    case 'l': LOAD(int64_t);
    case 'L': LOAD(uint64_t);
    case 'e': return half_value(half_at(values, index));
    case 'f': LOAD(float);
    default: LOAD(double);
  }
}

static const char *read_number(const spinney_cells *cells, int64_t index, spinney_value *value) {
  value->type = SPINNEY_NUMBER;
  value->number = number_at(cells->format, cells->array->buffers[1], cells->array->offset + index);
  return isfinite(value->number) ? NULL : "not a finite number";
}

// ---- strings

static const char *read_string(const spinney_cells *cells, int64_t index, spinney_value *value) {
  int64_t start, end;
  if (!spinney_cell_span(cells->array, index, cells->format == 'U', &start, &end)) return "offsets out of order";
  value->type = SPINNEY_STRING;
  value->length = (size_t)(end - start);
  value->text = value->length ? (const char *)cells->array->buffers[2] + start : "";
  const char *stop = value->text + value->length;
  return spinney_utf8_check(value->text, stop) == stop ? NULL : "a string that is not UTF-8";
}

// ---- cells

static const char *read_plain(const spinney_cells *cells, int64_t index, spinney_value *value) {
  value->type = SPINNEY_NULL;
  if (cells->format == 'n' || spinney_cell_is_null(cells->array, index)) return NULL;
  if (cells->format == 'u' || cells->format == 'U') return read_string(cells, index, value);
  if (cells->format != 'b') return read_number(cells, index, value);
  value->type = SPINNEY_BOOLEAN;
  value->number = bit(cells->array->buffers[1], cells->array->offset + index);
  return NULL;
}

// An index beyond 2^53 rounds, but no dictionary is that long.
static const char *read_dictionary(const spinney_cells *cells, int64_t index, spinney_value *value) {
  const spinney_cells values = {.array = cells->array->dictionary, .format = cells->dictionary};
  value->type = SPINNEY_NULL;
  if (spinney_cell_is_null(cells->array, index)) return NULL;
  double place = number_at(cells->format, cells->array->buffers[1], cells->array->offset + index);
  if (place < 0.0 || place >= (double)values.array->length) return "an index outside the dictionary";
  return read_plain(&values, (int64_t)place, value);
}

const char *spinney_cell_read(const spinney_cells *cells, int64_t index, spinney_value *value) {
  return cells->dictionary ? read_dictionary(cells, index, value) : read_plain(cells, index, value);
}
