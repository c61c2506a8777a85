// json_string.h - the inside of JSON strings (RFC 8259, section 7).

#ifndef SPINNEY_JSON_STRING_H
#define SPINNEY_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>

// Checks the string whose first byte after the opening quote is `at` and returns its closing quote; *escaped says
// whether there are escapes in it. Where it is wrong, returns that place and sets *problem, which is NULL else.
const char *spinney_json_string_end(const char *at, const char *end, bool *escaped, const char **problem);

// Writes what a checked string with escapes says, which is never longer than the string, and returns its length.
size_t spinney_json_unescape(const char *at, const char *end, char *out);

#endif
