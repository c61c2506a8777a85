// support.c - what the programs of the kit need from the system.

#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kit.h"

void kit_die(const char *what, const char *detail) {
  fprintf(stderr, "%s: %s\n", what, detail);
  exit(2);
}

void *kit_alloc(size_t count, size_t size) {
  void *memory = calloc(count ? count : 1, size);
  if (!memory) kit_die("out of memory", "workload kit");
  return memory;
}

static long file_length(FILE *file, const char *path) {
  if (fseek(file, 0, SEEK_END) != 0) kit_die("cannot seek", path);
  long length = ftell(file);
  if (length < 0) kit_die("cannot tell the length of", path);
  rewind(file);
  return length;
}

char *kit_read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) kit_die("cannot open", path);
  size_t length = (size_t)file_length(file, path);
  char *text = kit_alloc(length + 1, 1);
  if (fread(text, 1, length, file) != length) kit_die("cannot read", path);
  fclose(file);
  return text;
}

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double kit_now(void) { return seconds_of(CLOCK_MONOTONIC); }

double kit_busy(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

double kit_resident_bytes(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  long total = 0, resident = 0;
  if (fscanf(file, "%ld %ld", &total, &resident) != 2) resident = 0;
  fclose(file);
  return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

uint64_t kit_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void kit_shuffle(uint32_t *items, size_t count, uint64_t seed) {
  for (size_t left = count; left > 1; left--) {
    size_t chosen = kit_mix(seed + left) % left;
    uint32_t item = items[chosen];
    items[chosen] = items[left - 1];
    items[left - 1] = item;
  }
}
