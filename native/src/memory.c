// memory.c - allocation that is counted, and errors.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "memory.h"

// ---- Errors ----------------------------------------------------------------------------------------------------

spinney_status spinney_fail(spinney_error *error, spinney_status status, size_t position, const char *format, ...) {
  if (!error) return status;
  error->status = status;
  error->position = position;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

spinney_status spinney_fail_memory(spinney_error *error) {
  return spinney_fail(error, SPINNEY_NO_MEMORY, 0, "out of memory");
}

// ---- Counted allocation ----------------------------------------------------------------------------------------

static void *resize_by_libc(void *context, void *memory, size_t size) {
  (void)context;
  if (size) return realloc(memory, size);
  free(memory);
  return NULL;
}

void spinney_memory_init(spinney_memory *memory, const spinney_allocator *allocator) {
  memory->allocator = allocator ? *allocator : (spinney_allocator){resize_by_libc, NULL};
  atomic_init(&memory->bytes, 0);
}

static void count(spinney_memory *memory, size_t old_size, size_t new_size) {
  atomic_fetch_add_explicit(&memory->bytes, new_size - old_size, memory_order_relaxed);
}

void *spinney_resize(spinney_memory *memory, void *old, size_t old_size, size_t new_size) {
  if (!new_size) {
    count(memory, old_size, 0);  // before the matcher frees itself, and this memory with it
    if (old) memory->allocator.resize(memory->allocator.context, old, 0);
    return NULL;
  }
  void *fresh = memory->allocator.resize(memory->allocator.context, old, new_size);
  if (fresh) count(memory, old_size, new_size);
  return fresh;
}

bool spinney_grow(spinney_memory *memory, void *array_of_pointer, uint32_t *capacity, size_t item_size, size_t needed) {
  if (needed <= *capacity) return true;
  size_t wanted = *capacity + *capacity / 2 + 8;
  if (wanted < needed) wanted = needed;
  if (wanted > UINT32_MAX) return false;
  void *array;
  memcpy(&array, array_of_pointer, sizeof array);  // it may be a pointer to anything
  array = spinney_resize(memory, array, *capacity * item_size, wanted * item_size);
  if (!array) return false;
  memcpy(array_of_pointer, &array, sizeof array);
  *capacity = (uint32_t)wanted;
  return true;
}

// ---- Scratch ---------------------------------------------------------------------------------------------------

bool spinney_scratch_reserve(spinney_scratch *scratch, size_t size) {
  if (size <= scratch->size) return true;
  size_t wanted = scratch->size * 2 > size ? scratch->size * 2 : size;
  uint8_t *fresh = spinney_resize(scratch->memory, scratch->bytes, scratch->size, wanted);
  if (!fresh) return false;
  scratch->bytes = fresh;
  scratch->size = wanted;
  return true;
}

void spinney_scratch_free(spinney_scratch *scratch) {
  spinney_resize(scratch->memory, scratch->bytes, scratch->size, 0);
  scratch->bytes = NULL;
  scratch->size = 0;
}
