// utf8.h - code points in and out of bytes.

#ifndef SPINNEY_UTF8_H
#define SPINNEY_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { SPINNEY_UTF8_MAX = 4 };  // bytes of one code point

// How many bytes the code point that begins at `at` takes, 1 to 4; 0 if there is none as RFC 3629 has it (too long,
// cut off, a surrogate, beyond U+10FFFF).
size_t spinney_utf8_length(const char *at, const char *end);

// The code point of those bytes.
uint32_t spinney_utf8_decode(const char *at, size_t length);

// Writes a code point and returns how many bytes that took.
size_t spinney_utf8_encode(uint32_t code, char *out);

// The length of as much of a text as fits in `most` bytes, whole code points only.
size_t spinney_utf8_shorten(const char *text, size_t length, size_t most);

// The first byte that is not UTF-8, or the end.
const char *spinney_utf8_check(const char *at, const char *end);

#endif
