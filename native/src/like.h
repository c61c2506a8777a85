// like.h - LIKE: % stands for any run of code points, _ for exactly one, \ takes a following %, _ or \ literally.

#ifndef SPINNEY_LIKE_H
#define SPINNEY_LIKE_H

#include <stdbool.h>
#include <stddef.h>

// Whether the whole text is like the pattern. Takes at most text x pattern steps, and no memory.
bool spinney_like(const char *text, size_t length, const char *pattern, size_t pattern_length);

#endif
