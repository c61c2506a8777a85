// Any bytes at the JSON door: an answer or an error with a position within them, and the same one twice.

#include <stdlib.h>
#include <string.h>

#include "run_files.h"
#include "spinney.h"

static void require(int holds) {
  if (!holds) abort();
}

// A filter of one box: the attribute is not null.
static void add_present(spinney_matcher *matcher, uint32_t id, const char *name) {
  uint8_t filter[64] = {'S', 'F', SPINNEY_FILTER_VERSION, 0, 1, 0, (uint8_t)strlen(name), 0};
  static const uint8_t box[] = {1, 0, 1, 5, 0, 0};
  memcpy(filter + 8, name, strlen(name));
  memcpy(filter + 8 + strlen(name), box, sizeof box);
  require(spinney_add(matcher, id, filter, 8 + strlen(name) + sizeof box, NULL) == SPINNEY_OK);
}

static spinney_reader *make_reader(void) {
  static const char *const names[] = {"a", "b", "temp", "stra\xC3\x9F" "e"};
  spinney_matcher *matcher;
  spinney_reader *reader;
  require(spinney_matcher_new(NULL, &matcher, NULL) == SPINNEY_OK);
  for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) add_present(matcher, i, names[i]);
  require(spinney_reader_new(matcher, &reader, NULL) == SPINNEY_OK);
  return reader;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static spinney_reader *reader;  // lives as long as the process
  if (!reader) reader = make_reader();
  spinney_matches matches;
  spinney_error first = {0}, second = {0};
  const char *text = size ? (const char *)data : "";
  spinney_status status = spinney_match_json(reader, text, size, &matches, &first);
  uint64_t found = status == SPINNEY_OK ? matches.offsets[matches.events] : 0;
  if (status != SPINNEY_OK) require(first.position <= size && memchr(first.message, 0, sizeof first.message) != NULL);
  require(spinney_match_json(reader, text, size, &matches, &second) == status && first.position == second.position);
  if (status == SPINNEY_OK) require(matches.offsets[matches.events] == found);
  for (size_t i = 0; status == SPINNEY_OK && i < matches.n_hits; i++) {
    require(text[matches.hits[i].begin] == '{' && text[matches.hits[i].end - 1] == '}');
  }
  return 0;
}
