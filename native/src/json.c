// The JSON door: RFC 8259 to the letter, one flat object or an array of them, and no second look at any byte that
// needs none.

#include <string.h>

#include "internal.h"
#include "keys.h"
#include "json_string.h"
#include "number.h"

enum { OBJECTS_PER_TURN = 1024 };  // after so many, writers get a chance

typedef struct parser {
  const char *start, *at, *end;
  spinney_reader *reader;
  spinney_door door;
  spinney_error *error;
  spinney_status status;
  size_t text_used;  // of door.text, by the unescaped strings of this object
  spinney_keys keys;
  size_t objects;  // so far
  bool held;       // writers are kept out
} parser;

typedef struct slice {
  const char *text;
  size_t length;
} slice;

static bool fail(parser *p, const char *at, const char *message) {
  p->status = spinney_fail(p->error, SPINNEY_BAD_EVENT, (size_t)(at - p->start), "%s", message);
  return false;
}

static bool fail_repeated(parser *p, const spinney_key *key) {
  p->status = spinney_fail_repeated(p->error, SPINNEY_BAD_EVENT, key);
  return false;
}

static bool fail_memory(parser *p) {
  p->status = spinney_fail_memory(p->error);
  return false;
}

// ---- what lies between

static void skip_space(parser *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t')) p->at++;
}

static bool next_is(const parser *p, char byte) { return p->at < p->end && *p->at == byte; }

static bool take(parser *p, char byte) {
  if (!next_is(p, byte)) return false;
  p->at++;
  return true;
}

// ---- strings

// Unescaped strings of one object are never longer than the whole input, so room for that is made once, and what
// points into it stays valid.
static bool unescape(parser *p, slice *string) {
  if (!spinney_scratch_reserve(p->door.text, (size_t)(p->end - p->start))) return fail_memory(p);
  char *out = (char *)p->door.text->bytes + p->text_used;
  string->length = spinney_json_unescape(string->text, string->text + string->length, out);
  string->text = out;
  p->text_used += string->length;
  return true;
}

// The string whose opening quote is next.
static bool take_string(parser *p, slice *string) {
  const char *problem, *first = p->at + 1;
  bool escaped;
  const char *quote = spinney_json_string_end(first, p->end, &escaped, &problem);
  if (problem) return fail(p, quote, problem);
  p->at = quote + 1;
  *string = (slice){first, (size_t)(quote - first)};
  return !escaped || unescape(p, string);
}

// ---- values

static bool take_word(parser *p, const char *word, spinney_value *value, spinney_type type, double number) {
  size_t length = strlen(word);
  if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) {
    return fail(p, p->at, "expected a number, a string, true, false or null");
  }
  p->at += length;
  value->type = type;
  value->number = number;
  return true;
}

static bool take_text(parser *p, spinney_value *value) {
  slice string;
  if (!take_string(p, &string)) return false;
  value->type = SPINNEY_STRING;
  value->text = string.text;
  value->length = string.length;
  return true;
}

static bool take_number(parser *p, spinney_value *value) {
  const char *problem;
  const char *stop = spinney_number_read(p->at, p->end, &value->number, &problem);
  if (problem) return fail(p, stop, problem);
  p->at = stop;
  value->type = SPINNEY_NUMBER;
  return true;
}

static bool take_value(parser *p, spinney_value *value) {
  switch (p->at < p->end ? *p->at : 0) {
    case '"': return take_text(p, value);
    case 't': return take_word(p, "true", value, SPINNEY_BOOLEAN, 1.0);
    case 'f': return take_word(p, "false", value, SPINNEY_BOOLEAN, 0.0);
    case 'n': return take_word(p, "null", value, SPINNEY_NULL, 0.0);
    case '{':
    case '[': return fail(p, p->at, "a value is a number, a string, a boolean or null; none is nested");
    case '-':
    case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
      return take_number(p, value);
    default: return fail(p, p->at, "expected a number, a string, true, false or null");
  }
}

// ---- objects

static bool set_value(parser *p, spinney_key key, spinney_value *value) {
  if (key.attribute == SPINNEY_NONE || value->type == SPINNEY_NULL) {
    return spinney_keys_add(&p->keys, key) || fail_memory(p);
  }
  value->attribute = key.attribute;
  return spinney_event_set(p->door.event, value) || fail_repeated(p, &key);
}

static bool take_member(parser *p) {
  skip_space(p);
  const char *quote = p->at;
  slice name;
  spinney_value value = {0};
  if (!next_is(p, '"')) return fail(p, p->at, "expected a key in double quotes");
  if (!take_string(p, &name)) return false;
  skip_space(p);
  if (!take(p, ':')) return fail(p, p->at, "expected a colon after the key");
  skip_space(p);
  if (!take_value(p, &value)) return false;
  uint32_t attribute = spinney_attribute_find(p->door.matcher, name.text, name.length);
  return set_value(p, (spinney_key){name.text, name.length, (size_t)(quote - p->start), attribute}, &value);
}

// Two keys with values of one attribute have met in the event; here the others meet those and each other.
static bool check_keys(parser *p) {
  const spinney_key *repeated = spinney_keys_repeated(&p->keys, p->door.event);
  return !repeated || fail_repeated(p, repeated);
}

static bool take_members(parser *p) {
  skip_space(p);
  if (take(p, '}')) return true;
  do {
    if (!take_member(p)) return false;
    skip_space(p);
  } while (take(p, ','));
  return take(p, '}') || fail(p, p->at, "expected a comma or the closing brace");
}

static bool match(parser *p) {
  p->status = spinney_match_event(p->reader, p->error);
  if (p->status == SPINNEY_OK) p->status = spinney_end_event(p->reader, p->error);
  return p->status == SPINNEY_OK;
}

static bool let_writers_in(parser *p) {
  p->status = spinney_reader_pause(p->reader, &p->door, p->error);
  p->held = p->status == SPINNEY_OK;
  return p->held;
}

static bool take_object(parser *p) {
  if (p->objects++ % OBJECTS_PER_TURN == OBJECTS_PER_TURN - 1 && !let_writers_in(p)) return false;
  skip_space(p);
  if (!take(p, '{')) return fail(p, p->at, "expected an object");
  spinney_event_clear(p->door.event);
  p->text_used = 0;
  p->keys.count = 0;
  return take_members(p) && check_keys(p) && match(p);
}

// ---- the document

static bool take_objects(parser *p) {
  skip_space(p);
  if (take(p, ']')) return true;
  do {
    if (!take_object(p)) return false;
    skip_space(p);
  } while (take(p, ','));
  return take(p, ']') || fail(p, p->at, "expected a comma or the closing bracket");
}

static bool take_document(parser *p) {
  skip_space(p);
  if (!next_is(p, '{') && !next_is(p, '[')) return fail(p, p->at, "expected an object or an array of objects");
  if (!(take(p, '[') ? take_objects(p) : take_object(p))) return false;
  skip_space(p);
  return p->at == p->end || fail(p, p->at, "expected the end of the text");
}

spinney_status spinney_match_json(spinney_reader *reader, const char *json, size_t length, spinney_matches *matches,
                                  spinney_error *error) {
  parser p;
  p.start = p.at = json;
  p.end = json + length;
  p.reader = reader;
  p.error = error;
  p.text_used = p.objects = 0;
  p.held = true;
  spinney_status status = spinney_reader_enter(reader, &p.door, error);
  if (status != SPINNEY_OK) return status;
  p.status = SPINNEY_OK;
  p.keys.count = 0;
  p.keys.more = (spinney_scratch){.memory = p.door.text->memory};
  if (take_document(&p)) spinney_reader_matches(reader, matches);
  if (p.held) spinney_reader_leave(reader);
  spinney_scratch_free(&p.keys.more);
  return p.status;
}
