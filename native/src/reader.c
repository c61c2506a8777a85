// reader.c - reading: the lock, the event, the answer.

#include "reader.h"

#include <math.h>

// ---- Make and free ---------------------------------------------------------------------------------------------

spinney_status spinney_reader_new(spinney_matcher *m, spinney_reader **reader, spinney_error *error) {
  spinney_reader *r = spinney_resize(&m->memory, NULL, 0, sizeof *r);
  if (!r) return spinney_fail_memory(error);
  memset(r, 0, sizeof *r);
  r->matcher = m;
  r->text.memory = r->program.memory = &m->memory;
  spinney_lock_write(&m->lock);
  spinney_gate_join(&m->lock, &r->gate);
  spinney_unlock_write(&m->lock);
  *reader = r;
  return SPINNEY_OK;
}

static void free_event(spinney_reader *r) {
  spinney_memory *memory = &r->matcher->memory;
  uint32_t n = r->event.capacity;
  spinney_resize(memory, r->event.slots, n * sizeof *r->event.slots, 0);
  spinney_resize(memory, r->event.present, n * sizeof *r->event.present, 0);
  spinney_resize(memory, r->numbers, n * sizeof *r->numbers, 0);
}

void spinney_reader_free(spinney_reader *r) {
  if (!r) return;
  spinney_memory *memory = &r->matcher->memory;
  spinney_lock_write(&r->matcher->lock);
  spinney_gate_part(&r->matcher->lock, &r->gate);
  spinney_unlock_write(&r->matcher->lock);
  free_event(r);
  spinney_scratch_free(&r->text);
  spinney_scratch_free(&r->program);
  spinney_resize(memory, r->ids, r->ids_capacity * sizeof *r->ids, 0);
  spinney_resize(memory, r->offsets, r->offsets_capacity * sizeof *r->offsets, 0);
  spinney_resize(memory, r->hits, r->hits_capacity * sizeof *r->hits, 0);
  spinney_resize(memory, r->stamps, r->stamps_capacity * sizeof *r->stamps, 0);
  spinney_resize(memory, r->probes, r->probes_capacity * sizeof *r->probes, 0);
  spinney_resize(memory, r->visits, r->visits_capacity * sizeof *r->visits, 0);
  spinney_resize(memory, r, sizeof *r, 0);
}

// ---- Room ------------------------------------------------------------------------------------------------------

// All three arrays by attribute grow together, or none.
static bool reserve_event(spinney_reader *r, uint32_t needed) {
  uint32_t old = r->event.capacity, capacity = needed + needed / 2 + 8;
  if (needed <= old) return true;
  spinney_memory *memory = &r->matcher->memory;
  spinney_value *slots = spinney_resize(memory, NULL, 0, capacity * sizeof *slots);
  uint32_t *present = spinney_resize(memory, NULL, 0, capacity * sizeof *present);
  spinney_query_numbers *numbers = spinney_resize(memory, NULL, 0, capacity * sizeof *numbers);
  if (!slots || !present || !numbers) {
    spinney_resize(memory, slots, slots ? capacity * sizeof *slots : 0, 0);
    spinney_resize(memory, present, present ? capacity * sizeof *present : 0, 0);
    spinney_resize(memory, numbers, numbers ? capacity * sizeof *numbers : 0, 0);
    return false;
  }
  memset(slots, 0, capacity * sizeof *slots);
  if (old) memcpy(slots, r->event.slots, old * sizeof *slots);
  if (old) memcpy(present, r->event.present, old * sizeof *present);
  free_event(r);
  r->event = (spinney_event){slots, present, r->event.n_present, capacity};
  r->numbers = numbers;
  return true;
}

static bool reserve_stamps(spinney_reader *r) {
  uint32_t old = r->stamps_capacity;
  if (!r->matcher->n_boxed || r->matcher->parts_end <= old) return true;
  if (!spinney_grow(&r->matcher->memory, &r->stamps, &r->stamps_capacity, sizeof *r->stamps, r->matcher->parts_end))
    return false;
  memset(r->stamps + old, 0, (r->stamps_capacity - old) * sizeof *r->stamps);
  return true;
}

// An event's answer has each id at most once: room for all of them, so that nothing need be asked while matching.
static bool reserve_ids(spinney_reader *r) {
  size_t needed = r->n_ids + r->matcher->n_ids + SPINNEY_COPY_SLACK;
  if (needed <= r->ids_capacity) return true;
  size_t capacity = needed + needed / 2;
  uint32_t *ids = spinney_resize(&r->matcher->memory, r->ids, r->ids_capacity * sizeof *ids, capacity * sizeof *ids);
  if (!ids) return false;
  r->ids = ids;
  r->ids_capacity = capacity;
  return true;
}

static bool reserve(spinney_reader *r) {
  return reserve_event(r, r->matcher->n_attributes) && reserve_stamps(r) && reserve_ids(r);
}

// ---- Entering and leaving --------------------------------------------------------------------------------------

// Keeps writers out. On failure nothing is held.
static bool enter(spinney_reader *r) {
  spinney_lock_read(&r->matcher->lock, &r->gate);
  if (reserve(r)) return true;
  spinney_unlock_read(&r->gate);
  return false;
}

static void open_door(spinney_reader *r, spinney_door *door) {
  *door = (spinney_door){r->matcher, &r->event, &r->text};
}

static bool begin_offsets(spinney_reader *r) {
  r->n_ids = 0;
  r->n_events = 0;
  r->n_hits = 0;
  if (!spinney_grow(&r->matcher->memory, &r->offsets, &r->offsets_capacity, sizeof *r->offsets, 1)) return false;
  r->offsets[0] = 0;
  return true;
}

spinney_status spinney_reader_enter(spinney_reader *r, spinney_door *door, spinney_error *error) {
  if (!begin_offsets(r) || !enter(r)) return spinney_fail_memory(error);
  open_door(r, door);
  return SPINNEY_OK;
}

void spinney_reader_leave(spinney_reader *r) { spinney_unlock_read(&r->gate); }

spinney_status spinney_reader_pause(spinney_reader *r, spinney_door *door, spinney_error *error) {
  spinney_reader_leave(r);
  if (!enter(r)) return spinney_fail_memory(error);
  open_door(r, door);
  return SPINNEY_OK;
}

// ---- Events ----------------------------------------------------------------------------------------------------

static void next_stamp(spinney_reader *r) {
  if (++r->stamp) return;
  memset(r->stamps, 0, r->stamps_capacity * sizeof *r->stamps);
  r->stamp = 1;
}

spinney_status spinney_match_event(spinney_reader *r, spinney_error *error) {
  size_t before = r->n_ids;
  if (!reserve_ids(r)) return spinney_fail_memory(error);
  next_stamp(r);
  if (spinney_search(r)) return SPINNEY_OK;
  r->n_ids = before;
  return spinney_fail_memory(error);
}

spinney_status spinney_end_event(spinney_reader *r, spinney_error *error) {
  if (!spinney_grow(&r->matcher->memory, &r->offsets, &r->offsets_capacity, sizeof *r->offsets, r->n_events + 2))
    return spinney_fail_memory(error);
  r->offsets[++r->n_events] = r->n_ids;
  return SPINNEY_OK;
}

spinney_status spinney_note_hit(spinney_reader *r, size_t begin, size_t end, spinney_error *error) {
  if (r->offsets[r->n_events - 1] == r->n_ids) return SPINNEY_OK;
  if (!spinney_grow(&r->matcher->memory, &r->hits, &r->hits_capacity, sizeof *r->hits, r->n_hits + 1))
    return spinney_fail_memory(error);
  r->hits[r->n_hits++] = (spinney_hit){r->n_events - 1, begin, end};
  return SPINNEY_OK;
}

void spinney_reader_matches(const spinney_reader *r, spinney_matches *matches) {
  *matches = (spinney_matches){r->ids, r->offsets, r->n_events, r->hits, r->n_hits};
}

// ---- Arrays of values ------------------------------------------------------------------------------------------

static spinney_status refuse(spinney_error *error, size_t i, const char *why) {
  return spinney_fail(error, SPINNEY_BAD_EVENT, i, "%s", why);
}

static spinney_status check_value(const spinney_matcher *m, const spinney_value *value, size_t i,
                                  spinney_error *error) {
  if (value->attribute >= m->n_attributes) return refuse(error, i, "no such attribute");
  if (value->type > SPINNEY_BOOLEAN) return refuse(error, i, "no such type");
  if (value->type == SPINNEY_NUMBER && !isfinite(value->number)) return refuse(error, i, "a number that is not finite");
  return SPINNEY_OK;
}

static void unset(spinney_event *event, uint32_t attribute) {
  if (event->slots[attribute].type == SPINNEY_NULL) return;
  uint32_t i = 0;
  while (event->present[i] != attribute) i++;
  event->present[i] = event->present[--event->n_present];
  event->slots[attribute].type = SPINNEY_NULL;
}

static spinney_status fill_event(spinney_reader *r, const spinney_value *values, size_t count,
                                 spinney_error *error) {
  spinney_event *event = &r->event;
  spinney_event_clear(event);
  for (size_t i = 0; i < count; i++) {
    spinney_status status = check_value(r->matcher, &values[i], i, error);
    if (status != SPINNEY_OK) return status;
    if (values[i].type == SPINNEY_NULL) {
      unset(event, values[i].attribute);
    } else {
      spinney_event_set(event, &values[i]);
    }
  }
  return SPINNEY_OK;
}

spinney_status spinney_match(spinney_reader *r, const spinney_value *values, size_t count, const uint32_t **ids,
                             size_t *n_ids, spinney_error *error) {
  r->n_ids = 0;
  if (!enter(r)) return spinney_fail_memory(error);
  spinney_status status = fill_event(r, values, count, error);
  if (status == SPINNEY_OK) status = spinney_match_event(r, error);
  spinney_reader_leave(r);
  if (status != SPINNEY_OK) return status;
  *ids = r->ids;
  *n_ids = r->n_ids;
  return SPINNEY_OK;
}
