// Any bytes as a filter: what spinney_add takes must match, share its entry and leave no trace when it is removed.
// The input is the length of the filter (u16), the filter, and an event in JSON.

#include <stdlib.h>

#include "run_files.h"
#include "spinney.h"

static void require(int holds) {
  if (!holds) abort();
}

static void match(spinney_matcher *matcher, const char *json, size_t length) {
  spinney_reader *reader;
  spinney_matches matches;
  require(spinney_reader_new(matcher, &reader, NULL) == SPINNEY_OK);
  if (spinney_match_json(reader, json, length, &matches, NULL) == SPINNEY_OK) {
    for (size_t i = 0; i < matches.events; i++) {
      uint64_t found = matches.offsets[i + 1] - matches.offsets[i];
      require(found == 0 || found == 2);  // both ids or none
    }
  }
  spinney_reader_free(reader);
}

static void add_match_remove(spinney_matcher *matcher, const uint8_t *filter, size_t length, const char *json,
                             size_t json_length) {
  spinney_error error = {0};
  spinney_stats stats;
  if (spinney_add(matcher, 1, filter, length, &error) != SPINNEY_OK) {
    require(error.status == SPINNEY_BAD_FILTER && error.position <= length);
    return;
  }
  require(spinney_add(matcher, 7, filter, length, NULL) == SPINNEY_OK);
  match(matcher, json, json_length);
  require(spinney_remove(matcher, 1, NULL) == SPINNEY_OK && spinney_remove(matcher, 7, NULL) == SPINNEY_OK);
  spinney_matcher_stats(matcher, &stats);
  require(stats.ids == 0 && stats.entries == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  size_t length = (size_t)(data[0] | data[1] << 8);
  if (length > size - 2) return 0;
  spinney_matcher *matcher;
  require(spinney_matcher_new(NULL, &matcher, NULL) == SPINNEY_OK);
  add_match_remove(matcher, data + 2, length, (const char *)data + 2 + length, size - 2 - length);
  spinney_matcher_free(matcher);
  return 0;
}
