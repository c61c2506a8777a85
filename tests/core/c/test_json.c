// The JSON door: what comes through as what, and what is refused where.

#include "doors.h"
#include "failing_allocator.h"

enum { NUMBER = 1, TEXT = 2, TRUTH = 4, ANY_A = 8, ANY_EURO = 16 };

// The attributes n = 1.5, s = "x\n\u20AC", b = true, and a and the euro sign for whether they are there at all.
static void open_door(void) {
  CHECK(doors_open(NULL));
  CHECK(add_number(0, "n", 1.5));
  CHECK(add_text(1, "s", "x\n\xE2\x82\xAC"));
  CHECK(add_boolean(2, "b", 1));
  CHECK(add_present(3, "a"));
  CHECK(add_present(4, "\xE2\x82\xAC"));
}

static spinney_status match(const char *json) {
  return spinney_match_json(door_reader, json, strlen(json), &door_matches, &door_error);
}

static bool gives(const char *json, uint32_t ids) {
  return match(json) == SPINNEY_OK && door_matches.events == 1 && event_matches(0, ids);
}

static bool refuses(const char *json, size_t position, const char *message) {
  bool refused = match(json) == SPINNEY_BAD_EVENT && door_error.status == SPINNEY_BAD_EVENT;
  return refused && door_error.position == position && strstr(door_error.message, message);
}

// ---- what comes through

static void values_come_through_as_what_they_are(void) {
  CHECK(gives("{\"n\":1.5}", NUMBER));
  CHECK(gives("{\"n\":15e-1,\"b\":true}", NUMBER | TRUTH));
  CHECK(gives("{\"b\":false,\"n\":\"1.5\"}", 0));
  CHECK(gives("{\"s\":\"x\\n\xE2\x82\xAC\"}", TEXT));
  CHECK(gives("{\"s\":\"\\u0078\\u000a\\u20aC\"}", TEXT));
  CHECK(gives("{\"a\":\"\"}", ANY_A));
  CHECK(gives(" {\r\n\t\"a\" : 0 , \"n\" : 1.5 } ", ANY_A | NUMBER));
  CHECK(gives("{}", 0));
}

static void null_is_missing(void) {
  CHECK(gives("{\"a\":null}", 0));
  CHECK(gives("{\"a\":null,\"n\":1.5}", NUMBER));
}

static void keys_may_be_escaped(void) {
  CHECK(gives("{\"\\u20ac\":1}", ANY_EURO));
  CHECK(gives("{\"\xE2\x82\xAC\":1}", ANY_EURO));
}

static void escapes_of_one_object_live_together(void) {
  CHECK(gives("{\"\\u0073\":\"x\\n\\u20ac\",\"\\u0061\":\"\\\"\\\\\\/\\b\\f\\r\\t\",\"z\":\"\\ud83d\\ude00\"}",
              TEXT | ANY_A));
}

static void an_array_is_one_event_each(void) {
  CHECK(match("[]") == SPINNEY_OK && door_matches.events == 0);
  CHECK(match("[{\"n\":1.5},{},{\"a\":1,\"n\":2}]") == SPINNEY_OK && door_matches.events == 3);
  CHECK(event_matches(0, NUMBER) && event_matches(1, 0) && event_matches(2, ANY_A));
}

static bool hits(size_t at, uint64_t event, uint64_t begin, uint64_t end) {
  const spinney_hit *hit = &door_matches.hits[at];
  return at < door_matches.n_hits && hit->event == event && hit->begin == begin && hit->end == end;
}

static void an_event_with_ids_says_where_its_text_is(void) {
  CHECK(match("[{\"n\":1.5},{}, {\"a\":\"}\\\"\"} ]") == SPINNEY_OK && door_matches.n_hits == 2);
  CHECK(hits(0, 0, 1, 10) && hits(1, 2, 15, 26));
  CHECK(match(" {\"n\":1.5} ") == SPINNEY_OK && door_matches.n_hits == 1 && hits(0, 0, 1, 10));
  CHECK(match("{}") == SPINNEY_OK && door_matches.n_hits == 0);
}

static void long_arrays_give_every_object(void) {
  enum { OBJECTS = 3000, BYTES = 8 };
  char *json = malloc(OBJECTS * BYTES + 2), *at = json;
  for (int i = 0; i < OBJECTS; i++) at += sprintf(at, "%c{\"a\":%d}", i ? ',' : '[', i % 10);
  strcpy(at, "]");
  CHECK(match(json) == SPINNEY_OK && door_matches.events == OBJECTS);
  CHECK(door_matches.offsets[OBJECTS] == OBJECTS && event_matches(OBJECTS - 1, ANY_A));
  free(json);
}

// ---- what is refused

static void broken_documents_are_refused(void) {
  CHECK(refuses("", 0, "expected an object or an array"));
  CHECK(refuses(" 1", 1, "expected an object or an array"));
  CHECK(refuses("\xEF\xBB\xBF{}", 0, "expected an object or an array"));
  CHECK(refuses("{} {}", 3, "expected the end"));
  CHECK(refuses("[{}", 3, "closing bracket"));
  CHECK(refuses("[{},]", 4, "expected an object"));
  CHECK(refuses("[1]", 1, "expected an object"));
  CHECK(refuses("{", 1, "expected a key"));
  CHECK(refuses("{\"a\":1", 6, "closing brace"));
  CHECK(refuses("{\"a\":1,}", 7, "expected a key"));
  CHECK(refuses("{a:1}", 1, "expected a key"));
  CHECK(refuses("{\"a\" 1}", 5, "expected a colon"));
}

static void broken_values_are_refused(void) {
  CHECK(refuses("{\"a\":}", 5, "expected a number, a string"));
  CHECK(refuses("{\"a\":True}", 5, "expected a number, a string"));
  CHECK(refuses("{\"a\":nul", 5, "expected a number, a string"));
  CHECK(refuses("{\"a\":NaN}", 5, "expected a number, a string"));
  CHECK(refuses("{\"z\":1e999}", 5, "too large"));
  CHECK(refuses("{\"z\":[[[[", 5, "none is nested"));
  CHECK(refuses("{\"z\":{}}", 5, "none is nested"));
}

static void broken_strings_are_refused(void) {
  CHECK(refuses("{\"a\":\"b", 7, "does not end"));
  CHECK(refuses("{\"a\":\"b\\", 7, "does not end"));
  CHECK(refuses("{\"a\":\"\n\"}", 6, "control character"));
  CHECK(refuses("{\"a\":\"12345678\\x\"}", 14, "no such escape"));
  CHECK(refuses("{\"a\":\"\\u12g4\"}", 6, "four hexadecimal"));
  CHECK(refuses("{\"a\":\"\\udc00\"}", 6, "second half"));
  CHECK(refuses("{\"a\":\"\\ud83d-\"}", 6, "second half"));
}

static void bytes_that_are_not_utf_8_are_refused(void) {
  CHECK(refuses("{\"a\":\"\xC0\xAF\"}", 6, "UTF-8"));          // too long
  CHECK(refuses("{\"a\":\"\xE0\x80\xAF\"}", 6, "UTF-8"));      // too long
  CHECK(refuses("{\"a\":\"\xED\xA0\x80\"}", 6, "UTF-8"));      // a surrogate
  CHECK(refuses("{\"a\":\"\xF0\x8F\xBF\xBF\"}", 6, "UTF-8"));  // too long
  CHECK(refuses("{\"a\":\"\xF4\x90\x80\x80\"}", 6, "UTF-8"));  // beyond the last code point
  CHECK(refuses("{\"a\":\"\xE2\x82\"}", 6, "UTF-8"));          // cut off
  CHECK(refuses("{\"a\":\"\x80\"}", 6, "UTF-8"));
}

static void keys_that_are_there_twice_are_refused(void) {
  CHECK(refuses("{\"a\":1,\"a\":1}", 7, "\"a\" is there twice"));
  CHECK(refuses("{\"a\":1,\"\\u0061\":null}", 7, "twice"));
  CHECK(refuses("{\"a\":null,\"a\":1}", 1, "twice"));
  CHECK(refuses("{\"q\":1,\"q\":1}", 7, "twice"));
  CHECK(refuses("{\"q\":null,\"\\u0071\":2}", 10, "twice"));
}

// An object with so many keys that no attribute has; `again` is one of them, at the end.
static char *many_keys(int count, const char *again) {
  char *json = malloc((size_t)count * 20 + 64), *at = json;
  at += sprintf(at, "{\"a\":1");
  for (int i = 0; i < count; i++) at += sprintf(at, ",\"key%d\":%d", i, i);
  sprintf(at, ",\"%s\":0}", again);
  return json;
}

static void a_hundred_thousand_keys_take_no_time(void) {
  char *json = many_keys(100000, "new");
  CHECK(gives(json, ANY_A));
  free(json);
  json = many_keys(100000, "key7");
  CHECK(match(json) == SPINNEY_BAD_EVENT && door_error.position == strlen(json) - strlen("\"key7\":0}"));
  free(json);
}

static void a_long_key_is_shown_in_whole_code_points(void) {
  char json[600] = "{\"";
  for (int twice = 0; twice < 2; twice++) {
    for (int i = 0; i < 50; i++) strcat(json, "\xE2\x82\xAC");
    strcat(json, twice ? "\":1}" : "\":1,\"");
  }
  CHECK(match(json) == SPINNEY_BAD_EVENT && strstr(door_error.message, "\xE2\x82\xAC\" is there twice"));
}

static void nothing_is_kept_of_what_was_refused(void) {
  CHECK(match("[{\"a\":1},{\"a\":}]") == SPINNEY_BAD_EVENT);
  CHECK(gives("{\"n\":1.5}", NUMBER));
}

static void without_memory_it_says_so_and_goes_on(void) {
  const char *json = "[{\"\\u0061\":\"\\n\"},{\"a\":1,\"k1\":1,\"k2\":null}]";
  char *long_json = many_keys(100, "new");
  for (long left = 0; left < 400; left++) {
    failing_allocator failing = {.left = left};
    spinney_allocator allocator = {failing_resize, &failing};
    if (doors_open(&allocator) && add_present(3, "a")) {
      spinney_status status = match(json);
      CHECK(status == SPINNEY_OK || status == SPINNEY_NO_MEMORY);
      status = match(long_json);
      CHECK(status == SPINNEY_OK || status == SPINNEY_NO_MEMORY);
      failing.left = -1;
      CHECK(gives("{\"a\":1}", ANY_A));
    }
    doors_close();
  }
  free(long_json);
}

int main(void) {
  open_door();
  values_come_through_as_what_they_are();
  null_is_missing();
  keys_may_be_escaped();
  escapes_of_one_object_live_together();
  an_array_is_one_event_each();
  an_event_with_ids_says_where_its_text_is();
  long_arrays_give_every_object();
  broken_documents_are_refused();
  broken_values_are_refused();
  broken_strings_are_refused();
  bytes_that_are_not_utf_8_are_refused();
  keys_that_are_there_twice_are_refused();
  a_hundred_thousand_keys_take_no_time();
  a_long_key_is_shown_in_whole_code_points();
  nothing_is_kept_of_what_was_refused();
  doors_close();
  without_memory_it_says_so_and_goes_on();
  return CHECK_RESULT;
}
