#include "casefold.h"

#include <string.h>

#include "casefold_table.h"
#include "utf8.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// The last range that begins at or before the code point, if it takes part in that range.
static const casefold_range *find_range(uint32_t code) {
  size_t low = 0, high = COUNT(casefold_ranges);
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (casefold_ranges[middle].first <= code) low = middle + 1;
    else high = middle;
  }
  if (low == 0) return NULL;
  const casefold_range *range = &casefold_ranges[low - 1];
  return code <= range->last && (code - range->first) % range->step == 0 ? range : NULL;
}

static const casefold_expansion *find_expansion(uint32_t code) {
  size_t low = 0, high = COUNT(casefold_expansions);
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (casefold_expansions[middle].code < code) low = middle + 1;
    else high = middle;
  }
  return low < COUNT(casefold_expansions) && casefold_expansions[low].code == code ? &casefold_expansions[low] : NULL;
}

// Writes what one code point beyond ASCII folds to, and returns how many bytes that took.
static size_t fold_one(const char *at, size_t length, char *out) {
  uint32_t code = spinney_utf8_decode(at, length);
  const casefold_range *range = find_range(code);
  if (range) return spinney_utf8_encode((uint32_t)((int32_t)code + range->delta), out);
  const casefold_expansion *expansion = find_expansion(code);
  if (expansion) {
    memcpy(out, expansion->text, expansion->length);
    return expansion->length;
  }
  memcpy(out, at, length);
  return length;
}

size_t spinney_casefold(const char *text, size_t length, char *folded) {
  const char *end = text + length;
  char *out = folded;
  while (text < end) {
    if ((unsigned char)*text < 0x80) {
      *out++ = (char)(*text >= 'A' && *text <= 'Z' ? *text + ('a' - 'A') : *text);
      text++;
      continue;
    }
    size_t one = spinney_utf8_length(text, end);
    if (one == 0) {
      *out++ = *text++;
      continue;
    }
    out += fold_one(text, one, out);
    text += one;
  }
  return (size_t)(out - folded);
}
