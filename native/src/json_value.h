// json_value.h - a JSON text that is being read: what lies between values, strings, and values that are not nested.
// Here and not in a file of their own, for both doors of JSON do little else.

#ifndef SPINNEY_JSON_VALUE_H
#define SPINNEY_JSON_VALUE_H

#include <string.h>

#include "internal.h"
#include "json_string.h"
#include "number.h"

typedef struct spinney_json {
  const char *start, *at, *end;
  spinney_scratch *text;  // for strings with escapes
  size_t text_used;       // by those that are still needed
  spinney_error *error;
  spinney_status status;
} spinney_json;

typedef struct spinney_slice {
  const char *text;
  size_t length;
} spinney_slice;

// ---- errors

static inline bool spinney_json_fail(spinney_json *p, const char *at, const char *message) {
  p->status = spinney_fail(p->error, SPINNEY_BAD_EVENT, (size_t)(at - p->start), "%s", message);
  return false;
}

static inline bool spinney_json_fail_memory(spinney_json *p) {
  p->status = spinney_fail_memory(p->error);
  return false;
}

// ---- what lies between

static inline void spinney_json_space(spinney_json *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t')) p->at++;
}

static inline bool spinney_json_next_is(const spinney_json *p, char byte) { return p->at < p->end && *p->at == byte; }

static inline bool spinney_json_take(spinney_json *p, char byte) {
  if (!spinney_json_next_is(p, byte)) return false;
  p->at++;
  return true;
}

// ---- strings

// Unescaped strings that are needed together are never longer than the whole input, so room for that is made once, and
// what points into it stays valid.
static inline bool spinney_json_unescaped(spinney_json *p, spinney_slice *string) {
  if (!spinney_scratch_reserve(p->text, (size_t)(p->end - p->start))) return spinney_json_fail_memory(p);
  char *out = (char *)p->text->bytes + p->text_used;
  string->length = spinney_json_unescape(string->text, string->text + string->length, out);
  string->text = out;
  p->text_used += string->length;
  return true;
}

// The string whose opening quote is next.
static inline bool spinney_json_string(spinney_json *p, spinney_slice *string) {
  const char *problem, *first = p->at + 1;
  bool escaped;
  const char *quote = spinney_json_string_end(first, p->end, &escaped, &problem);
  if (problem) return spinney_json_fail(p, quote, problem);
  p->at = quote + 1;
  *string = (spinney_slice){first, (size_t)(quote - first)};
  return !escaped || spinney_json_unescaped(p, string);
}

// A member's key and the colon.
static inline bool spinney_json_key(spinney_json *p, spinney_slice *name) {
  if (!spinney_json_next_is(p, '"')) return spinney_json_fail(p, p->at, "expected a key in double quotes");
  if (!spinney_json_string(p, name)) return false;
  spinney_json_space(p);
  return spinney_json_take(p, ':') || spinney_json_fail(p, p->at, "expected a colon after the key");
}

// ---- values

static inline bool spinney_json_word(spinney_json *p, const char *word, spinney_value *value, spinney_type type,
                                     double number) {
  size_t length = strlen(word);
  if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) {
    return spinney_json_fail(p, p->at, "expected a number, a string, true, false or null");
  }
  p->at += length;
  value->type = type;
  value->number = number;
  return true;
}

static inline bool spinney_json_text(spinney_json *p, spinney_value *value) {
  spinney_slice string;
  if (!spinney_json_string(p, &string)) return false;
  value->type = SPINNEY_STRING;
  value->text = string.text;
  value->length = string.length;
  return true;
}

static inline bool spinney_json_number(spinney_json *p, spinney_value *value) {
  const char *problem;
  const char *stop = spinney_number_read(p->at, p->end, &value->number, &problem);
  if (problem) return spinney_json_fail(p, stop, problem);
  p->at = stop;
  value->type = SPINNEY_NUMBER;
  return true;
}

static inline bool spinney_json_value(spinney_json *p, spinney_value *value) {
  switch (p->at < p->end ? *p->at : 0) {
    case '"': return spinney_json_text(p, value);
    case 't': return spinney_json_word(p, "true", value, SPINNEY_BOOLEAN, 1.0);
    case 'f': return spinney_json_word(p, "false", value, SPINNEY_BOOLEAN, 0.0);
    case 'n': return spinney_json_word(p, "null", value, SPINNEY_NULL, 0.0);
    case '{':
    case '[': return spinney_json_fail(p, p->at, "a value is a number, a string, a boolean or null; none is nested");
    case '-':
    case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
      return spinney_json_number(p, value);
    default: return spinney_json_fail(p, p->at, "expected a number, a string, true, false or null");
  }
}

#endif
