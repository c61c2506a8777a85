// Any bytes as a program: what the check passes must run, over values and over nulls, and stay within its bytes.

#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "memory.h"
#include "run_files.h"

enum { N_ATTRIBUTES = 4 };

static void require(bool holds) {
  if (!holds) abort();
}

static void run(const uint8_t *code, size_t size, spinney_value *slots) {
  static const uint32_t attribute_map[N_ATTRIBUTES] = {0, 1, 2, 3};
  spinney_event event = {.slots = slots, .capacity = N_ATTRIBUTES};
  spinney_memory memory;
  spinney_memory_init(&memory, NULL);
  spinney_scratch scratch = {.memory = &memory};
  spinney_verdict verdict = spinney_program_run(code, size, attribute_map, &event, &scratch);
  require(verdict >= SPINNEY_VERDICT_UNKNOWN && verdict <= SPINNEY_VERDICT_TRUE);
  spinney_scratch_free(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char text[] = "Stra\xC3\x9F" "e \xCE\x90%_";
  uint8_t *code = malloc(size ? size : 1);  // a copy of its own, so that a step beyond it is seen
  spinney_error error = {0};
  require(code != NULL);
  if (size) memcpy(code, data, size);
  if (spinney_program_check(code, size, N_ATTRIBUTES, 0, &error) == SPINNEY_OK) {
    spinney_value values[N_ATTRIBUTES] = {{.type = SPINNEY_NUMBER, .number = 15.97},
                                          {.type = SPINNEY_STRING, .text = text, .length = sizeof text - 1},
                                          {.type = SPINNEY_BOOLEAN, .number = 1.0}};
    spinney_value nulls[N_ATTRIBUTES] = {{0}};
    run(code, size, values);
    run(code, size, nulls);
  } else {
    require(error.position <= size);
  }
  free(code);
  return 0;
}
