// run_files.h - a main for compilers without libFuzzer: gives each file that is named to the harness once.
//
//   cc -DSPINNEY_FUZZ_FILES -Inative/include -Inative/src native/fuzz/fuzz_json.c native/src/*.c -lm -o fuzz_json
//   ./fuzz_json native/fuzz/seeds/fuzz_json/*

#ifndef SPINNEY_RUN_FILES_H
#define SPINNEY_RUN_FILES_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef SPINNEY_FUZZ_FILES

#include <stdio.h>
#include <stdlib.h>

static int run_file(const char *path) {
  enum { LARGEST = 1 << 24 };
  FILE *file = fopen(path, "rb");
  uint8_t *data = malloc(LARGEST);
  if (!file || !data) {
    perror(path);
    return 1;
  }
  LLVMFuzzerTestOneInput(data, fread(data, 1, LARGEST, file));
  free(data);
  return fclose(file);
}

int main(int count, char **paths) {
  for (int i = 1; i < count; i++) {
    if (run_file(paths[i])) return 1;
  }
  return 0;
}

#endif
#endif
