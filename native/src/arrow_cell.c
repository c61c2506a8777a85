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

bool spinney_cell_span(const struct ArrowArray *array, int64_t index, bool large, int64_t *start, int64_t *end) {
  index += array->offset;
  *start = large ? ((const int64_t *)array->buffers[1])[index] : ((const int32_t *)array->buffers[1])[index];
  *end = large ? ((const int64_t *)array->buffers[1])[index + 1] : ((const int32_t *)array->buffers[1])[index + 1];
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

static double number_at(char format, const void *values, int64_t index) {
  switch (format) {
    case 'c': return ((const int8_t *)values)[index];
    case 'C': return ((const uint8_t *)values)[index];
    case 's': return ((const int16_t *)values)[index];
    case 'S': return ((const uint16_t *)values)[index];
    case 'i': return ((const int32_t *)values)[index];
    case 'I': return ((const uint32_t *)values)[index];
    case 'l': return (double)((const int64_t *)values)[index];
    case 'L': return (double)((const uint64_t *)values)[index];
    case 'e': return half_value(((const uint16_t *)values)[index]);
    case 'f': return ((const float *)values)[index];
    default: return ((const double *)values)[index];
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
