#include "keys.h"

#include <string.h>

#include "utf8.h"

bool spinney_keys_add(spinney_keys *keys, spinney_key key) {
  if (keys->count < SPINNEY_FEW_KEYS) {
    keys->few[keys->count++] = key;
    return true;
  }
  if (keys->count > (SIZE_MAX / sizeof key) / 2) return false;
  size_t needed = (keys->count + 1) * sizeof key;
  if (needed > keys->more.size && !spinney_scratch_reserve(&keys->more, 2 * needed)) return false;
  if (keys->count == SPINNEY_FEW_KEYS) memcpy(keys->more.bytes, keys->few, sizeof keys->few);
  keys->count++;
  spinney_keys_all(keys)[keys->count - 1] = key;
  return true;
}

// By length first, so that texts are compared only when they could be equal; equal ones by position.
static int order(const spinney_key *a, const spinney_key *b) {
  if (a->length != b->length) return a->length < b->length ? -1 : 1;
  return a->length ? memcmp(a->text, b->text, a->length) : 0;
}

static bool before(const spinney_key *a, const spinney_key *b) {
  int compared = order(a, b);
  return compared ? compared < 0 : a->position < b->position;
}

static void swap(spinney_key *a, spinney_key *b) {
  spinney_key kept = *a;
  *a = *b;
  *b = kept;
}

// Lets the key at `parent` sink to where it is not before the keys below it.
static void sink(spinney_key *heap, size_t parent, size_t count) {
  for (size_t child = 2 * parent + 1; child < count; parent = child, child = 2 * parent + 1) {
    if (child + 1 < count && before(&heap[child], &heap[child + 1])) child++;
    if (!before(&heap[parent], &heap[child])) return;
    swap(&heap[parent], &heap[child]);
  }
}

// A heap sort: n log n whatever the keys, in place, and no libc sort that might allocate.
static void sort(spinney_key *keys, size_t count) {
  for (size_t i = count / 2; i-- > 0;) sink(keys, i, count);
  for (size_t i = count; i-- > 1;) {
    swap(&keys[0], &keys[i]);
    sink(keys, 0, i);
  }
}

static const spinney_key *repeated_of_few(const spinney_key *keys, size_t count) {
  for (size_t second = 1; second < count; second++) {
    for (size_t first = 0; first < second; first++) {
      if (order(&keys[first], &keys[second]) == 0) return &keys[second];
    }
  }
  return NULL;
}

static bool in_event(const spinney_key *key, const spinney_event *event) {
  return event && key->attribute != SPINNEY_NONE && event->slots[key->attribute].type != SPINNEY_NULL;
}

const spinney_key *spinney_keys_repeated(spinney_keys *keys, const spinney_event *event) {
  spinney_key *all = spinney_keys_all(keys);
  for (size_t i = 0; i < keys->count; i++) {
    if (in_event(&all[i], event)) return &all[i];
  }
  if (keys->count <= SPINNEY_FEW_KEYS) return repeated_of_few(all, keys->count);
  sort(all, keys->count);
  for (size_t i = 1; i < keys->count; i++) {
    if (order(&all[i - 1], &all[i]) == 0) return &all[i];
  }
  return NULL;
}

void spinney_keys_sort(spinney_keys *keys) { sort(spinney_keys_all(keys), keys->count); }

const spinney_key *spinney_keys_find(spinney_keys *sorted, const char *text, size_t length) {
  const spinney_key wanted = {.text = text, .length = length};
  const spinney_key *all = spinney_keys_all(sorted);
  size_t low = 0, high = sorted->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int compared = order(&all[middle], &wanted);
    if (compared == 0) return &all[middle];
    if (compared < 0) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

spinney_status spinney_fail_repeated(spinney_error *error, spinney_status status, const spinney_key *key) {
  enum { SHOWN = 60 };
  int shown = (int)spinney_utf8_shorten(key->text, key->length, SHOWN);
  return spinney_fail(error, status, key->position, "\"%.*s\" is there twice", shown, key->text);
}
