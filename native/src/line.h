// line.h - filters that are one range of one attribute: the ids whose range holds a number.

#ifndef SPINNEY_LINE_H
#define SPINNEY_LINE_H

#include "run.h"

// Minus signs turn every question into "all keys up to x". All zero is the empty line.
typedef struct spinney_line {
  spinney_run from;    // low .. inf, by low
  spinney_run to;      // -inf .. high, by -high
  spinney_run points;  // low = high
  struct line_node *between;
} spinney_line;

// low <= high. insert: false: no memory, and nothing changed. erase: the id is there, with this range.
bool spinney_line_insert(spinney_line *line, spinney_pool *pool, double low, double high, uint32_t id);
void spinney_line_erase(spinney_line *line, spinney_pool *pool, double low, double high, uint32_t id);
void spinney_line_free(spinney_line *line, spinney_pool *pool);

// Writes the ids to out, which has SPINNEY_COPY_SLACK more room than the answer, and returns the end of the answer.
uint32_t *spinney_line_copy(const spinney_line *line, double x, const spinney_kernels *kernels, uint32_t *out);

#endif
