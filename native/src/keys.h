// keys.h - whether a key is there twice in one event, however many keys somebody sends.

#ifndef SPINNEY_KEYS_H
#define SPINNEY_KEYS_H

#include "internal.h"

typedef struct spinney_key {
  const char *text;  // unescaped
  size_t length;
  size_t position;     // in the input, or the column
  uint32_t attribute;  // or SPINNEY_NONE; without an event, what its owner likes
} spinney_key;

enum { SPINNEY_FEW_KEYS = 32 };  // compared each with each; more are sorted

// The keys that the event does not show: those of no attribute and those whose value is null.
typedef struct spinney_keys {
  spinney_scratch more;  // all of them, when they are not few
  size_t count;
  spinney_key few[SPINNEY_FEW_KEYS];
} spinney_keys;

// False: no memory.
bool spinney_keys_add(spinney_keys *keys, spinney_key key);

// A key that is there twice: here and as a value of the event (NULL: there is none), or twice here, then the second.
// NULL if there is none.
// Changes the order of the keys.
const spinney_key *spinney_keys_repeated(spinney_keys *keys, const spinney_event *event);

// Fails with this message, which shows a key as far as there is room for it.
spinney_status spinney_fail_repeated(spinney_error *error, spinney_status status, const spinney_key *key);

// Sorts keys, many or few, and finds one of that text, or NULL.
void spinney_keys_sort(spinney_keys *keys);
const spinney_key *spinney_keys_find(spinney_keys *sorted, const char *text, size_t length);

static inline spinney_key *spinney_keys_all(spinney_keys *keys) {
  return keys->count <= SPINNEY_FEW_KEYS ? keys->few : (spinney_key *)(void *)keys->more.bytes;
}

#endif
