#include "json_string.h"

#include <stdint.h>
#include <string.h>

#include "utf8.h"

enum { HIGH_SURROGATE = 0xD800, LOW_SURROGATE = 0xDC00, AFTER_SURROGATES = 0xE000, UNICODE_ESCAPE_BYTES = 6 };

static bool is_plain(char byte) { return byte >= 0x20 && byte != '"' && byte != '\\' && (unsigned char)byte < 0x80; }

#define EACH_BYTE(value) (UINT64_C(0x0101010101010101) * (value))

// Whether all eight bytes are plain: a subtraction borrows into a byte's high bit where the byte is the one looked for.
static bool eight_are_plain(const char *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  uint64_t quotes = (word ^ EACH_BYTE('"')) - EACH_BYTE(1), backslashes = (word ^ EACH_BYTE('\\')) - EACH_BYTE(1);
  return ((word | (word - EACH_BYTE(0x20)) | quotes | backslashes) & EACH_BYTE(0x80)) == 0;
}

static const char *skip_plain(const char *at, const char *end) {
  while (end - at >= 8 && eight_are_plain(at)) at += 8;
  while (at < end && is_plain(*at)) at++;
  return at;
}

static int hex_digit(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

// The code unit of \uXXXX at `at`, or -1.
static int32_t code_unit(const char *at, const char *end) {
  if (end - at < UNICODE_ESCAPE_BYTES || at[0] != '\\' || at[1] != 'u') return -1;
  int32_t unit = 0;
  for (int i = 2; i < UNICODE_ESCAPE_BYTES; i++) {
    int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    unit = unit << 4 | digit;
  }
  return unit;
}

static bool is_surrogate(int32_t unit, int32_t first) {
  return unit >= first && unit < first + (AFTER_SURROGATES - LOW_SURROGATE);
}

static size_t unicode_escape_length(const char *at, const char *end, const char **problem) {
  int32_t unit = code_unit(at, end);
  if (unit < 0) *problem = "expected four hexadecimal digits after \\u";
  if (is_surrogate(unit, LOW_SURROGATE)) *problem = "the second half of a surrogate pair comes first";
  if (!is_surrogate(unit, HIGH_SURROGATE)) return UNICODE_ESCAPE_BYTES;
  if (!is_surrogate(code_unit(at + UNICODE_ESCAPE_BYTES, end), LOW_SURROGATE)) {
    *problem = "expected the second half of a surrogate pair";
  }
  return 2 * UNICODE_ESCAPE_BYTES;
}

// What \x stands for, or 0.
static char simple_escape(char letter) {
  switch (letter) {
    case '"':
    case '\\':
    case '/': return letter;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
  }
}

static size_t escape_length(const char *at, const char *end, const char **problem) {
  if (end - at < 2) {
    *problem = "the string does not end";
    return 0;
  }
  if (at[1] == 'u') return unicode_escape_length(at, end, problem);
  if (!simple_escape(at[1])) *problem = "no such escape; a backslash itself is written \\\\";
  return 2;
}

// The length of one thing in a string that is not plain.
static size_t special_length(const char *at, const char *end, bool *escaped, const char **problem) {
  if (*at == '\\') {
    *escaped = true;
    return escape_length(at, end, problem);
  }
  if ((unsigned char)*at < 0x20) {
    *problem = "a control character in a string must be escaped";
    return 0;
  }
  size_t length = spinney_utf8_length(at, end);
  if (length == 0) *problem = "this is not UTF-8";
  return length;
}

const char *spinney_json_string_end(const char *at, const char *end, bool *escaped, const char **problem) {
  *escaped = false;
  *problem = NULL;
  for (;;) {
    at = skip_plain(at, end);
    if (at == end) {
      *problem = "the string does not end";
      return at;
    }
    if (*at == '"') return at;
    size_t length = special_length(at, end, escaped, problem);
    if (*problem) return at;
    at += length;
  }
}

static uint32_t unicode_escape(const char **at, const char *end) {
  int32_t unit = code_unit(*at, end);
  *at += UNICODE_ESCAPE_BYTES;
  if (!is_surrogate(unit, HIGH_SURROGATE)) return (uint32_t)unit;
  int32_t low = code_unit(*at, end);
  *at += UNICODE_ESCAPE_BYTES;
  return (uint32_t)(0x10000 + ((unit - HIGH_SURROGATE) << 10) + (low - LOW_SURROGATE));
}

size_t spinney_json_unescape(const char *at, const char *end, char *out) {
  char *start = out;
  while (at < end) {
    if (*at != '\\') {
      *out++ = *at++;
    } else if (at[1] == 'u') {
      out += spinney_utf8_encode(unicode_escape(&at, end), out);
    } else {
      *out++ = simple_escape(at[1]);
      at += 2;
    }
  }
  return (size_t)(out - start);
}
