// check.h - the whole test runner: CHECK says where something does not hold, CHECK_RESULT is what main returns.

#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdio.h>

static int check_failures;

static inline bool check_that(bool holds, const char *what, const char *file, int line) {
  if (!holds) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    check_failures++;
  }
  return holds;
}

#define CHECK(condition) check_that(condition, #condition, __FILE__, __LINE__)
#define CHECK_RESULT (check_failures ? 1 : 0)

#endif
