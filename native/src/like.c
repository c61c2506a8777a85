#include "like.h"

#include "utf8.h"

typedef struct cursor {
  const char *at, *end;
} cursor;

// Bytes that are not UTF-8 count as one each.
static void skip_code_point(cursor *text) {
  size_t length = spinney_utf8_length(text->at, text->end);
  text->at += length ? length : 1;
}

static bool is_escape(const cursor *pattern) {
  if (*pattern->at != '\\' || pattern->end - pattern->at < 2) return false;
  char next = pattern->at[1];
  return next == '%' || next == '_' || next == '\\';
}

// Takes one step in both, which are not at their ends, if the text has what the pattern wants. A literal code point
// takes as many steps as it has bytes.
static bool step(cursor *text, cursor *pattern) {
  if (*pattern->at == '_') {
    pattern->at++;
    skip_code_point(text);
    return true;
  }
  int escape = is_escape(pattern);
  if (pattern->at[escape] != *text->at) return false;
  pattern->at += escape + 1;
  text->at++;
  return true;
}

static void skip_percents(cursor *pattern) {
  while (pattern->at < pattern->end && *pattern->at == '%') pattern->at++;
}

// When a try fails, only the last % can help by taking one code point more: what came before it fits at its leftmost
// place already, which leaves the most for the rest.
bool spinney_like(const char *text, size_t length, const char *pattern, size_t pattern_length) {
  cursor t = {text, text + length}, p = {pattern, pattern + pattern_length};
  cursor retry_text = t;
  const char *retry_pattern = NULL;
  while (t.at < t.end) {
    if (p.at < p.end && *p.at == '%') {
      skip_percents(&p);
      retry_pattern = p.at;
      retry_text = t;
    } else if (p.at == p.end || !step(&t, &p)) {
      if (!retry_pattern) return false;
      skip_code_point(&retry_text);
      t = retry_text;
      p.at = retry_pattern;
    }
  }
  skip_percents(&p);
  return p.at == p.end;
}
