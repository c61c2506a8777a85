// The JSON door: RFC 8259 to the letter, one flat object or an array of them, and no second look at any byte that
// needs none.

#include "internal.h"
#include "json_value.h"
#include "keys.h"

enum { OBJECTS_PER_TURN = 1024 };  // after so many, writers get a chance

typedef struct parser {
  spinney_json in;
  spinney_reader *reader;
  spinney_door door;
  spinney_keys keys;
  size_t objects;  // so far
  bool held;       // writers are kept out
} parser;

static bool fail(parser *p, const char *message) { return spinney_json_fail(&p->in, p->in.at, message); }

static bool fail_repeated(parser *p, const spinney_key *key) {
  p->in.status = spinney_fail_repeated(p->in.error, SPINNEY_BAD_EVENT, key);
  return false;
}

// ---- objects

static bool set_value(parser *p, spinney_key key, spinney_value *value) {
  if (key.attribute == SPINNEY_NONE || value->type == SPINNEY_NULL) {
    return spinney_keys_add(&p->keys, key) || spinney_json_fail_memory(&p->in);
  }
  value->attribute = key.attribute;
  return spinney_event_set(p->door.event, value) || fail_repeated(p, &key);
}

static bool take_member(parser *p) {
  spinney_json_space(&p->in);
  const char *quote = p->in.at;
  spinney_slice name;
  spinney_value value = {0};
  if (!spinney_json_key(&p->in, &name)) return false;
  spinney_json_space(&p->in);
  if (!spinney_json_value(&p->in, &value)) return false;
  uint32_t attribute = spinney_attribute_find(p->door.matcher, name.text, name.length);
  return set_value(p, (spinney_key){name.text, name.length, (size_t)(quote - p->in.start), attribute}, &value);
}

// Two keys with values of one attribute have met in the event; here the others meet those and each other.
static bool check_keys(parser *p) {
  const spinney_key *repeated = spinney_keys_repeated(&p->keys, p->door.event);
  return !repeated || fail_repeated(p, repeated);
}

static bool take_members(parser *p) {
  spinney_json_space(&p->in);
  if (spinney_json_take(&p->in, '}')) return true;
  do {
    if (!take_member(p)) return false;
    spinney_json_space(&p->in);
  } while (spinney_json_take(&p->in, ','));
  return spinney_json_take(&p->in, '}') || fail(p, "expected a comma or the closing brace");
}

static bool match(parser *p, const char *first) {
  size_t begin = (size_t)(first - p->in.start), end = (size_t)(p->in.at - p->in.start);
  p->in.status = spinney_match_event(p->reader, p->in.error);
  if (p->in.status == SPINNEY_OK) p->in.status = spinney_end_event(p->reader, p->in.error);
  if (p->in.status == SPINNEY_OK) p->in.status = spinney_note_hit(p->reader, begin, end, p->in.error);
  return p->in.status == SPINNEY_OK;
}

static bool let_writers_in(parser *p) {
  p->in.status = spinney_reader_pause(p->reader, &p->door, p->in.error);
  p->held = p->in.status == SPINNEY_OK;
  return p->held;
}

static bool take_object(parser *p) {
  if (p->objects++ % OBJECTS_PER_TURN == OBJECTS_PER_TURN - 1 && !let_writers_in(p)) return false;
  spinney_json_space(&p->in);
  const char *first = p->in.at;
  if (!spinney_json_take(&p->in, '{')) return fail(p, "expected an object");
  spinney_event_clear(p->door.event);
  p->in.text_used = 0;
  p->keys.count = 0;
  return take_members(p) && check_keys(p) && match(p, first);
}

// ---- the document

static bool take_objects(parser *p) {
  spinney_json_space(&p->in);
  if (spinney_json_take(&p->in, ']')) return true;
  do {
    if (!take_object(p)) return false;
    spinney_json_space(&p->in);
  } while (spinney_json_take(&p->in, ','));
  return spinney_json_take(&p->in, ']') || fail(p, "expected a comma or the closing bracket");
}

static bool take_document(parser *p) {
  spinney_json_space(&p->in);
  if (!spinney_json_next_is(&p->in, '{') && !spinney_json_next_is(&p->in, '[')) {
    return fail(p, "expected an object or an array of objects");
  }
  if (!(spinney_json_take(&p->in, '[') ? take_objects(p) : take_object(p))) return false;
  spinney_json_space(&p->in);
  return p->in.at == p->in.end || fail(p, "expected the end of the text");
}

spinney_status spinney_match_json(spinney_reader *reader, const char *json, size_t length, spinney_matches *matches,
                                  spinney_error *error) {
  parser p;
  p.in = (spinney_json){.start = json, .at = json, .end = json + length, .error = error};
  p.reader = reader;
  p.objects = 0;
  p.held = true;
  spinney_status status = spinney_reader_enter(reader, &p.door, error);
  if (status != SPINNEY_OK) return status;
  p.in.text = p.door.text;
  p.keys.count = 0;
  p.keys.more = (spinney_scratch){.memory = p.door.text->memory};
  if (take_document(&p)) spinney_reader_matches(reader, matches);
  if (p.held) spinney_reader_leave(reader);
  spinney_scratch_free(&p.keys.more);
  return p.in.status;
}
