// internal.h - what the parts of the C core know of each other. The public manual is spinney.h.
//
// Files:  memory (allocation, accounting), pool (small blocks), error, lock (many readers, one writer), attributes (names),
//         filter (the byte form), run, line, space, bucket (the index), matcher (add, remove), reader (match);
//         program (what boxes cannot say), json and arrow (the doors); columns and columns_read (rows of JSON as Arrow).
// External names begin with spinney_, so that the core can be linked statically into anything.

#ifndef SPINNEY_INTERNAL_H
#define SPINNEY_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spinney.h"

#define SPINNEY_NONE UINT32_MAX  // no attribute, no entry

// ---- Errors ----------------------------------------------------------------------------------------------------

#if defined(__GNUC__)
#define SPINNEY_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define SPINNEY_PRINTF(text, first)
#endif

// Fills *error, if there is one, and returns status.
spinney_status spinney_fail(spinney_error *error, spinney_status status, size_t position, const char *format, ...)
    SPINNEY_PRINTF(4, 5);
spinney_status spinney_fail_memory(spinney_error *error);

// ---- Memory ----------------------------------------------------------------------------------------------------

// The allocator and what is allocated through it now. Readers allocate too, so the sum is atomic.
typedef struct spinney_memory {
  spinney_allocator allocator;
  atomic_size_t bytes;
} spinney_memory;

// As realloc, except that the old size is told: NULL and 0 to allocate, a new size of 0 to free. NULL: no memory, or freed.
void *spinney_resize(spinney_memory *memory, void *old, size_t old_size, size_t new_size);

// A buffer that only grows. Its owner frees it.
typedef struct spinney_scratch {
  spinney_memory *memory;
  uint8_t *bytes;
  size_t size;
} spinney_scratch;

// At least size bytes, the old content kept; false: no memory, nothing changed.
bool spinney_scratch_reserve(spinney_scratch *scratch, size_t size);
void spinney_scratch_free(spinney_scratch *scratch);

// ---- Events ----------------------------------------------------------------------------------------------------

// One event by attribute. Clearing costs what was set, not what could be: sensors differ, and most attributes are null.
// slots[a].type is SPINNEY_NULL for every a < capacity that is not in present.
typedef struct spinney_event {
  spinney_value *slots;
  uint32_t *present;  // attributes that are not null, each once
  uint32_t n_present;
  uint32_t capacity;
} spinney_event;

static inline void spinney_event_clear(spinney_event *event) {
  for (uint32_t i = 0; i < event->n_present; i++) event->slots[event->present[i]].type = SPINNEY_NULL;
  event->n_present = 0;
}

// value->attribute is below capacity; its type is not SPINNEY_NULL. Whether the attribute was null before.
static inline bool spinney_event_set(spinney_event *event, const spinney_value *value) {
  spinney_value *slot = &event->slots[value->attribute];
  bool fresh = slot->type == SPINNEY_NULL;
  if (fresh) event->present[event->n_present++] = value->attribute;
  *slot = *value;
  return fresh;
}

// ---- Programs (program.c) --------------------------------------------------------------------------------------

typedef enum spinney_verdict {
  SPINNEY_VERDICT_NO_MEMORY = -2,
  SPINNEY_VERDICT_UNKNOWN = -1,
  SPINNEY_VERDICT_FALSE = 0,
  SPINNEY_VERDICT_TRUE = 1
} spinney_verdict;

// Checks once, at add, what run then relies on: opcodes, operands, jumps, stack depth, one value at the end.
// Positions in errors are base_position + the offset in code.
spinney_status spinney_program_check(const uint8_t *code, size_t length, uint32_t n_attributes, size_t base_position,
                                     spinney_error *error);

// attribute_map gives the matcher's attribute for each of the filter's. scratch is the reader's, to be used freely.
spinney_verdict spinney_program_run(const uint8_t *code, size_t length, const uint32_t *attribute_map,
                                    const spinney_event *event, spinney_scratch *scratch);

// ---- Attributes ------------------------------------------------------------------------------------------------

// The attribute of that name, or SPINNEY_NONE. To be called between enter and leave.
uint32_t spinney_attribute_find(const spinney_matcher *matcher, const char *name, size_t length);

// ---- Readers, as the doors see them ----------------------------------------------------------------------------
//
// A door calls enter; then for each event: fills the event (clear, set), match_event, end_event; then matches, leave.
// Text that events point to is the door's: it may live in the input or in *text, until match_event returns.

typedef struct spinney_door {
  const spinney_matcher *matcher;
  spinney_event *event;
  spinney_scratch *text;
} spinney_door;

// Keeps writers out, forgets the last answer, and makes the event large enough for every attribute there is.
// On failure nothing is held.
spinney_status spinney_reader_enter(spinney_reader *reader, spinney_door *door, spinney_error *error);
void spinney_reader_leave(spinney_reader *reader);

// Between two events of a long input: lets writers in, and goes on with the same answer as if entered again (there may
// be more attributes now). On failure nothing is held.
spinney_status spinney_reader_pause(spinney_reader *reader, spinney_door *door, spinney_error *error);

// Appends the ids of the event to the answer.
spinney_status spinney_match_event(spinney_reader *reader, spinney_error *error);
// Notes that the answer for the next event begins here.
spinney_status spinney_end_event(spinney_reader *reader, spinney_error *error);
// Notes where in the input the text of the event that has ended begins and ends, if the answer has an id for it.
spinney_status spinney_note_hit(spinney_reader *reader, size_t begin, size_t end, spinney_error *error);
// What was collected since enter.
void spinney_reader_matches(const spinney_reader *reader, spinney_matches *matches);

#endif
