// search.c - which entries are true of an event.
//
// What is found by copying is copied. Spaces are searched together, breadth first: each node that may hold something is
// asked for from memory when it is found and read when its turn comes, so that the waits overlap.

#include <float.h>
#include <math.h>

#include "reader.h"

// ---- Answers ---------------------------------------------------------------------------------------------------

static void emit(spinney_reader *r, uint32_t id) { r->ids[r->n_ids++] = id; }

static void emit_run(spinney_reader *r, const spinney_run *run) {
  uint32_t *end = spinney_run_copy_all(run, r->matcher->kernels, r->ids + r->n_ids);
  r->n_ids = (size_t)(end - r->ids);
}

static void emit_entry(spinney_reader *r, const spinney_entry *entry) {
  if (entry->n_ids == 1) {
    emit(r, entry->id);
  } else {
    emit_run(r, entry->group);
  }
}

// ---- Checking --------------------------------------------------------------------------------------------------

// Whether the entry was not looked at yet for this event. One box that holds is enough.
static bool is_first_look(spinney_reader *r, const spinney_entry *entry) {
  if (spinney_load_u16(entry->body) == 1) return true;
  uint32_t *stamp = &r->stamps[entry->first_part];
  if (*stamp == r->stamp) return false;
  *stamp = r->stamp;
  return true;
}

static spinney_verdict run_program(spinney_reader *r, const spinney_entry *entry, const uint32_t *map) {
  const uint8_t *at = entry->body + SPINNEY_BODY_FIXED;
  for (uint32_t n = spinney_load_u16(entry->body); n; n--) at = spinney_box_end(at);
  return spinney_program_run(at + 4, spinney_load_u32(at), map, &r->event, &r->program);
}

static bool check_part(spinney_reader *r, uint32_t index) {
  const spinney_part *part = spinney_part_at(r->matcher, index);
  const spinney_entry *entry = spinney_entry_at(r->matcher, part->entry);
  const spinney_schema *schema = r->matcher->schemas[entry->schema];
  if (!spinney_box_holds(entry->body + part->offset, schema->map, &r->event) || !is_first_look(r, entry)) return true;
  bool has_program = schema->head[3];
  spinney_verdict verdict = has_program ? run_program(r, entry, schema->map) : SPINNEY_VERDICT_TRUE;
  if (verdict == SPINNEY_VERDICT_TRUE) emit_entry(r, entry);
  return verdict != SPINNEY_VERDICT_NO_MEMORY;
}

// false: no memory.
static bool check(spinney_reader *r, uint32_t item) {
  if (item & SPINNEY_PART) return check_part(r, item & ~SPINNEY_PART);
  spinney_box box = spinney_item_box(r->matcher, item);
  if (spinney_box_holds(box.bytes, box.map, &r->event)) emit(r, item);
  return true;
}

static bool check_all(spinney_reader *r, const uint32_t *items, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (!check(r, items[i])) return false;
  return true;
}

// ---- Spaces ----------------------------------------------------------------------------------------------------

static bool reserve_probe(spinney_reader *r) {
  return r->n_probes < r->probes_capacity ||
         spinney_grow(&r->matcher->memory, &r->probes, &r->probes_capacity, sizeof *r->probes,
                      (size_t)r->n_probes + 1);
}

static bool reserve_visits(spinney_reader *r, uint32_t more) {
  if (r->visits_capacity - r->n_visits >= more) return true;
  return spinney_grow(&r->matcher->memory, &r->visits, &r->visits_capacity, sizeof *r->visits,
                      (size_t)r->n_visits + more);
}

static void ask_for(const spinney_node *node, uint32_t n_coordinates) {
  const char *at = (const char *)node;
  for (uint32_t line = 0; line < 2 * n_coordinates + 4; line++) __builtin_prefetch(at + (size_t)line * SPINNEY_LINE_BYTES);
}

// The event as the space has it; false: one of its attributes is not a number now.
static bool fill_probe(const spinney_reader *r, const spinney_space *space, spinney_probe *probe) {
  for (uint32_t c = 0; c < space->n_coordinates; c++) {
    spinney_coordinate coordinate = space->coordinates[c];
    if (r->event.slots[coordinate.attribute].type != SPINNEY_NUMBER) return false;
    probe->possible[c] = r->numbers[coordinate.attribute].possible[coordinate.side];
    probe->certain[c] = r->numbers[coordinate.attribute].certain[coordinate.side];
  }
  probe->n_coordinates = space->n_coordinates;
  return true;
}

static bool visit_space(spinney_reader *r, const spinney_space *space) {
  if (!reserve_probe(r) || !reserve_visits(r, 1)) return false;
  if (!fill_probe(r, space, &r->probes[r->n_probes])) return true;
  r->visits[r->n_visits++] = (spinney_visit){space->root, r->n_probes++};
  ask_for(space->root, space->n_coordinates);
  return true;
}

static uint64_t group_mask(const spinney_reader *r, const spinney_node *node, uint32_t n_coordinates,
                           const float *query, uint32_t group) {
  size_t stride = spinney_node_stride(n_coordinates, node->level);
  uint32_t begin = group * SPINNEY_GROUP_BLOCKS, blocks = node->blocks - begin;
  if (blocks > SPINNEY_GROUP_BLOCKS) blocks = SPINNEY_GROUP_BLOCKS;
  return r->matcher->kernels->dominated(spinney_node_points(node) + begin * stride, stride, n_coordinates, blocks,
                                        query);
}

static bool search_leaf_group(spinney_reader *r, const spinney_node *leaf, const spinney_probe *probe,
                              uint32_t group) {
  uint64_t possible = group_mask(r, leaf, probe->n_coordinates, probe->possible, group);
  if (!possible) return true;
  uint64_t certain = group_mask(r, leaf, probe->n_coordinates, probe->certain, group);
  for (; possible; possible &= possible - 1) {
    uint32_t bit = (uint32_t)__builtin_ctzll(possible);
    uint32_t item = *spinney_node_item(leaf, probe->n_coordinates, group * SPINNEY_LEAF_MOST + bit);
    if (certain >> bit & 1 && !(item & SPINNEY_PART)) {
      emit(r, item);
    } else if (!check(r, item)) {
      return false;
    }
  }
  return true;
}

static bool search_inner_group(spinney_reader *r, spinney_visit visit, uint32_t group) {
  const spinney_probe *probe = &r->probes[visit.probe];
  uint64_t possible = group_mask(r, visit.node, probe->n_coordinates, probe->possible, group);
  if (!reserve_visits(r, SPINNEY_LEAF_MOST)) return false;
  for (; possible; possible &= possible - 1) {
    uint32_t slot = group * SPINNEY_LEAF_MOST + (uint32_t)__builtin_ctzll(possible);
    const spinney_node *child = *spinney_node_child(visit.node, probe->n_coordinates, slot);
    ask_for(child, probe->n_coordinates);
    r->visits[r->n_visits++] = (spinney_visit){child, visit.probe};
  }
  return true;
}

static bool search_spaces(spinney_reader *r) {
  for (uint32_t i = 0; i < r->n_visits; i++) {
    spinney_visit visit = r->visits[i];
    uint32_t groups = (visit.node->blocks + SPINNEY_GROUP_BLOCKS - 1) / SPINNEY_GROUP_BLOCKS;
    for (uint32_t group = 0; group < groups; group++) {
      bool done = visit.node->level ? search_inner_group(r, visit, group)
                                    : search_leaf_group(r, visit.node, &r->probes[visit.probe], group);
      if (!done) return false;
    }
  }
  return true;
}

// ---- Buckets ---------------------------------------------------------------------------------------------------

static bool visit_bucket(spinney_reader *r, const spinney_bucket *bucket, uint64_t mask) {
  if (bucket->ids.n_parts) emit_run(r, &bucket->ids);
  if (!check_all(r, bucket->few, bucket->n_few) || !check_all(r, bucket->rest, bucket->n_rest)) return false;
  for (uint32_t i = 0; i < bucket->n_spaces; i++)
    if (!(bucket->spaces[i].mask & ~mask) && !visit_space(r, bucket->spaces[i].space)) return false;
  return true;
}

static bool visit_value(spinney_reader *r, const spinney_bucket_key *key, uint64_t mask) {
  const spinney_bucket *bucket = spinney_bucket_find(r->matcher, key, spinney_bucket_hash(key));
  return !bucket || visit_bucket(r, bucket, mask);
}

static bool visit_number(spinney_reader *r, const spinney_attribute_record *record, uint32_t attribute,
                         uint64_t mask) {
  double x = r->event.slots[attribute].number + 0.0;  // -0 is 0
  uint32_t *end = spinney_line_copy(&record->line, x, r->matcher->kernels, r->ids + r->n_ids);
  r->n_ids = (size_t)(end - r->ids);
  if (!record->n_numbers) return true;
  spinney_bucket_key key = {SPINNEY_BUCKET_NUMBER, attribute, sizeof x, (const uint8_t *)&x};
  return visit_value(r, &key, mask);
}

static bool visit_string(spinney_reader *r, const spinney_attribute_record *record, uint32_t attribute,
                         uint64_t mask) {
  const spinney_value *value = &r->event.slots[attribute];
  spinney_bucket_key key = {SPINNEY_BUCKET_STRING, attribute, (uint32_t)value->length, (const uint8_t *)value->text};
  if (record->n_strings && value->length <= UINT32_MAX && !visit_value(r, &key, mask)) return false;
  key.kind = SPINNEY_BUCKET_PREFIX;
  for (uint32_t i = 0; i < record->n_prefixes; i++) {
    key.length = record->prefixes[i].length;
    if (key.length <= value->length && !visit_value(r, &key, mask)) return false;
  }
  return true;
}

static bool visit_boolean(spinney_reader *r, const spinney_attribute_record *record, uint32_t attribute,
                          uint64_t mask) {
  const spinney_bucket *bucket = record->booleans[r->event.slots[attribute].number != 0];
  return !bucket || visit_bucket(r, bucket, mask);
}

static bool visit_attribute(spinney_reader *r, uint32_t attribute, uint64_t mask) {
  const spinney_attribute_record *record = &r->matcher->attributes[attribute];
  bool done = true;
  switch ((spinney_type)r->event.slots[attribute].type) {
    case SPINNEY_NUMBER: done = visit_number(r, record, attribute, mask); break;
    case SPINNEY_STRING: done = visit_string(r, record, attribute, mask); break;
    case SPINNEY_BOOLEAN: done = visit_boolean(r, record, attribute, mask); break;
    case SPINNEY_NULL: break;
  }
  return done && (!record->present || visit_bucket(r, record->present, mask));
}

// ---- The event -------------------------------------------------------------------------------------------------

// The float that many steps below. Nothing is below minus infinity: NaN, which dominates nothing. Without branches, which
// would be guessed wrong half of the time.
static inline float below(float f, int32_t steps) {
  int32_t bits;
  f = f == 0 ? -0.0f : f;
  memcpy(&bits, &f, sizeof bits);
  int32_t order = (bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1)) - steps;  // as integers, floats are in order
  bits = order ^ (int32_t)((uint32_t)(order >> 31) >> 1);
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline float round_down(double x) {
  if (x > FLT_MAX) return FLT_MAX;
  if (x < -FLT_MAX) return -INFINITY;
  float f = (float)x;
  return below(f, f > x);
}

static spinney_query_numbers query_numbers(double x) {
  float down = round_down(x), minus_up = round_down(-x);
  return (spinney_query_numbers){{-minus_up, -down}, {below(down, 1), below(minus_up, 1)}};
}

// Rounds the numbers of the event that spaces ask for; their attributes as a mask, modulo 64.
static uint64_t prepare_numbers(spinney_reader *r) {
  uint64_t mask = 0;
  for (uint32_t i = 0; i < r->event.n_present; i++) {
    uint32_t attribute = r->event.present[i];
    const spinney_value *value = &r->event.slots[attribute];
    if (value->type != SPINNEY_NUMBER || !r->matcher->attributes[attribute].n_coordinates) continue;
    r->numbers[attribute] = query_numbers(value->number);
    mask |= UINT64_C(1) << attribute % 64;
  }
  return mask;
}

bool spinney_search(spinney_reader *r) {
  uint64_t mask = prepare_numbers(r);
  r->n_probes = r->n_visits = 0;
  if (r->matcher->always && !visit_bucket(r, r->matcher->always, mask)) return false;
  for (uint32_t i = 0; i < r->event.n_present; i++)
    if (!visit_attribute(r, r->event.present[i], mask)) return false;
  return search_spaces(r);
}
