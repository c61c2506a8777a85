// load.c - reads the text files of a workload into flat arrays.

#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

static void make_path(char path[1024], const char *folder, const char *name, const char *ending) {
  int length = snprintf(path, 1024, "%s/%s.%s", folder, name, ending);
  if (length < 0 || length >= 1024) kit_die("path too long", folder);
}

// The next word of the line, or NULL at its end. *at is left behind the word.
static char *next_word(char **at) {
  char *word = *at;
  while (*word == ' ') word++;
  if (*word == '\n' || *word == 0) return NULL;
  char *end = word + strcspn(word, " \n");
  *at = *end == ' ' ? end + 1 : end;
  return word;
}

static char *need_word(char **at, const char *where) {
  char *word = next_word(at);
  if (!word) kit_die("short line in", where);
  return word;
}

static size_t need_attribute(const kit_workload *workload, const char *word, const char *where) {
  size_t attribute = strtoul(word, NULL, 10);
  if (attribute >= workload->n_attributes) kit_die("unknown attribute in", where);
  return attribute;
}

static size_t count_lines(const char *text) {
  size_t lines = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
  return lines;
}

// Where the next line starts, *at being anywhere in one.
static char *line_after(char *at) {
  char *end = strchr(at, '\n');
  return end ? end + 1 : at + strlen(at);
}

static void load_schema(kit_workload *workload, const char *path) {
  char *text = kit_read_file(path);
  for (char *line = text; *line; line = line_after(line)) {
    size_t number;
    char type, name[KIT_NAME_BYTES];
    if (sscanf(line, "%zu %31s %c", &number, name, &type) != 3) kit_die("bad line in", path);
    if (number != workload->n_attributes || number >= KIT_MAX_ATTRIBUTES) kit_die("bad attribute in", path);
    strcpy(workload->names[number], name);
    workload->is_string[number] = type == 's';
    workload->n_attributes++;
  }
  free(text);
}

static double string_number(kit_workload *workload, const char *word) {
  size_t length = strcspn(word, " \n");
  for (size_t i = 0; i < workload->n_strings; i++)
    if (strlen(workload->strings[i]) == length && !memcmp(workload->strings[i], word, length)) return (double)i;
  if (workload->n_strings == KIT_MAX_STRINGS) kit_die("too many different strings", word);
  char *copy = kit_alloc(length + 1, 1);
  memcpy(copy, word, length);
  workload->strings[workload->n_strings] = copy;
  return (double)workload->n_strings++;
}

static void load_interval(kit_workload *workload, const char *op, char **at, double *low, double *high,
                          const char *path) {
  char *word = need_word(at, path);
  double value = op[0] == 'S' ? string_number(workload, word) : strtod(word, NULL);
  bool closed = op[1] == '=';
  *low = -INFINITY, *high = INFINITY;
  if (op[0] == '<')
    *high = closed ? value : nextafter(value, -INFINITY);
  else if (op[0] == '>')
    *low = closed ? value : nextafter(value, INFINITY);
  else if (op[0] == 'B')
    *low = value, *high = strtod(need_word(at, path), NULL);
  else if (op[0] == '=' || op[0] == 'S')
    *low = *high = value;
  else
    kit_die("unknown operator in", path);
}

static void reserve_predicates(kit_workload *workload, size_t count) {
  workload->attribute = realloc(workload->attribute, count);
  workload->low = realloc(workload->low, count * sizeof *workload->low);
  workload->high = realloc(workload->high, count * sizeof *workload->high);
  if (!workload->attribute || !workload->low || !workload->high) kit_die("out of memory", "predicates");
}

static void load_subscriptions(kit_workload *workload, const char *path) {
  char *text = kit_read_file(path);
  workload->n_subscriptions = count_lines(text);
  workload->first = kit_alloc(workload->n_subscriptions + 1, sizeof *workload->first);
  size_t used = 0, capacity = 0, number = 0;
  for (char *line = text; *line; line = line_after(line)) {
    char *at = line;
    size_t predicates = strtoul(need_word(&at, path), NULL, 10);
    workload->first[number++] = (uint32_t)used;
    for (; predicates--; used++) {
      if (used == capacity) reserve_predicates(workload, capacity = capacity * 2 + 1024);
      workload->attribute[used] = (uint8_t)need_attribute(workload, need_word(&at, path), path);
      const char *op = need_word(&at, path);
      load_interval(workload, op, &at, &workload->low[used], &workload->high[used], path);
    }
  }
  workload->first[number] = (uint32_t)used;
  free(text);
}

static void load_events(kit_workload *workload, const char *path) {
  char *text = kit_read_file(path);
  workload->n_events = count_lines(text);
  workload->values = kit_alloc(workload->n_events * workload->n_attributes, sizeof *workload->values);
  double *row = workload->values;
  for (char *line = text; *line; line = line_after(line), row += workload->n_attributes) {
    char *at = line, *word;
    while ((word = next_word(&at))) {
      size_t attribute = need_attribute(workload, word, path);
      char *value = need_word(&at, path);
      row[attribute] = workload->is_string[attribute] ? string_number(workload, value) : strtod(value, NULL);
    }
  }
  free(text);
}

void kit_load(kit_workload *workload, const char *folder, const char *name, const char *size) {
  char path[1024], ending[64];
  *workload = (kit_workload){0};
  make_path(path, folder, name, "schema");
  load_schema(workload, path);
  snprintf(ending, sizeof ending, "%s.subs", size);
  make_path(path, folder, name, ending);
  load_subscriptions(workload, path);
  make_path(path, folder, name, "events");
  load_events(workload, path);
}

void kit_unload(kit_workload *workload) {
  for (size_t i = 0; i < workload->n_strings; i++) free(workload->strings[i]);
  free(workload->first);
  free(workload->attribute);
  free(workload->low);
  free(workload->high);
  free(workload->values);
}
