// number.h - decimal text to the nearest double, ties to even, whatever the locale.

#ifndef SPINNEY_NUMBER_H
#define SPINNEY_NUMBER_H

// Reads the JSON number (RFC 8259, section 6) that begins at `at` and returns the first byte after it. Where the text
// is no number, or one beyond a double, it returns where that shows and sets *problem to what is wrong; else to NULL.
const char *spinney_number_read(const char *at, const char *end, double *number, const char **problem);

#endif
