// casefold.h - full case folding by Unicode 14, as native/python/spinney/casefold.py.

#ifndef SPINNEY_CASEFOLD_H
#define SPINNEY_CASEFOLD_H

#include <stddef.h>

enum { SPINNEY_CASEFOLD_GROWTH = 3 };  // a folded text is at most so many times as long; a test looks at every entry

// Writes the folded text to `folded`, which has room for SPINNEY_CASEFOLD_GROWTH * length bytes, and returns its
// length. Bytes that are not UTF-8 stay as they are.
size_t spinney_casefold(const char *text, size_t length, char *folded);

#endif
