// entry.c - distinct filters, the ids that hold them, and where they are kept.

#include "entry.h"

#include "place.h"

static spinney_box box_at(const spinney_matcher *m, const spinney_entry *entry, uint32_t offset) {
  return (spinney_box){entry->body + offset, m->schemas[entry->schema]->map};
}

static spinney_box first_box(const spinney_matcher *m, const spinney_entry *entry) {
  return box_at(m, entry, SPINNEY_BODY_FIXED);
}

// ---- Parts -----------------------------------------------------------------------------------------------------

static uint32_t new_part(spinney_matcher *m, uint32_t entry, uint32_t offset, spinney_bucket *bucket) {
  uint32_t part = m->free_part;
  if (part != SPINNEY_NONE) {
    m->free_part = spinney_part_at(m, part)->next;
  } else {
    if (m->parts_end == SPINNEY_PART || !spinney_pages_reserve(&m->parts, &m->memory, m->parts_end))
      return SPINNEY_NONE;
    part = m->parts_end++;
  }
  *spinney_part_at(m, part) = (spinney_part){bucket, entry, offset, 0, SPINNEY_NONE};
  return part;
}

static void free_part(spinney_matcher *m, uint32_t part) {
  spinney_part_at(m, part)->next = m->free_part;
  m->free_part = part;
}

static bool place_part(spinney_matcher *m, uint32_t index, uint32_t offset) {
  spinney_entry *entry = spinney_entry_at(m, index);
  spinney_box box = box_at(m, entry, offset);
  spinney_bucket *bucket = spinney_place_choose(m, box);
  if (!bucket) return false;
  uint32_t part = new_part(m, index, offset, bucket);
  if (part != SPINNEY_NONE && spinney_place_insert(m, bucket, box, part | SPINNEY_PART)) {
    spinney_part_at(m, part)->next = entry->first_part;
    entry->first_part = part;
    return true;
  }
  if (part != SPINNEY_NONE) free_part(m, part);
  spinney_bucket_release(m, bucket);
  return false;
}

static void remove_parts(spinney_matcher *m, spinney_entry *entry) {
  while (entry->first_part != SPINNEY_NONE) {
    uint32_t index = entry->first_part;
    spinney_part *part = spinney_part_at(m, index);
    spinney_place_erase(m, part->bucket, box_at(m, entry, part->offset), index | SPINNEY_PART);
    spinney_bucket_release(m, part->bucket);
    entry->first_part = part->next;
    free_part(m, index);
  }
}

static bool place_parts(spinney_matcher *m, uint32_t index, uint32_t n_boxes) {
  spinney_entry *entry = spinney_entry_at(m, index);
  const uint8_t *box = entry->body + SPINNEY_BODY_FIXED;
  for (uint32_t i = 0; i < n_boxes; i++, box = spinney_box_end(box)) {
    if (place_part(m, index, (uint32_t)(box - entry->body))) continue;
    remove_parts(m, entry);
    return false;
  }
  m->n_boxed += n_boxes > 1;
  return true;
}

// ---- Keeping ---------------------------------------------------------------------------------------------------

// The only predicate of a box that has one.
static spinney_predicate only_predicate(spinney_box box) {
  spinney_predicate p = {0};
  spinney_predicate_read(box.bytes + 1, &p);
  p.attribute = box.map[p.attribute];
  return p;
}

static spinney_kept way_to_keep(const spinney_matcher *m, const spinney_filter *filter, const spinney_entry *entry) {
  if (!filter->n_boxes) return SPINNEY_NOWHERE;
  if (filter->n_boxes > 1 || filter->has_program) return SPINNEY_PLACED;
  spinney_box box = first_box(m, entry);
  if (*box.bytes > 1) return SPINNEY_PLACED;
  if (!*box.bytes) return SPINNEY_IDS;
  spinney_predicate p = only_predicate(box);
  if (p.kind != SPINNEY_RANGE) return SPINNEY_IDS;
  return p.low <= p.high ? SPINNEY_LINE : SPINNEY_NOWHERE;
}

static bool keep_in_line(spinney_matcher *m, const spinney_entry *entry, uint32_t id) {
  spinney_predicate p = only_predicate(first_box(m, entry));
  return spinney_line_insert(&m->attributes[p.attribute].line, &m->lines, p.low, p.high, id);
}

static bool keep_id(spinney_matcher *m, spinney_entry *entry, uint32_t id) {
  entry->bucket = spinney_place_choose(m, first_box(m, entry));
  if (!entry->bucket) return false;
  if (spinney_run_insert(&entry->bucket->ids, &m->lines, 0, id)) return true;
  spinney_bucket_release(m, entry->bucket);
  return false;
}

// As an id if nothing more need be checked or said, else as parts.
static bool place(spinney_matcher *m, uint32_t index, const spinney_filter *filter, uint32_t id) {
  spinney_entry *entry = spinney_entry_at(m, index);
  entry->id = id;
  if (filter->n_boxes > 1 || filter->has_program) return place_parts(m, index, filter->n_boxes);
  spinney_box box = first_box(m, entry);
  spinney_bucket *bucket = spinney_place_choose(m, box);
  if (!bucket) return false;
  if (!spinney_place_is_whole(bucket, box)) {
    spinney_bucket_release(m, bucket);
    return place_parts(m, index, 1);
  }
  entry->bucket = bucket;
  // Items find their boxes by way of the id.
  *(uint32_t *)spinney_page_item(&m->entry_of, id) = index;
  if (spinney_place_insert(m, bucket, box, id)) return true;
  *(uint32_t *)spinney_page_item(&m->entry_of, id) = SPINNEY_NONE;
  spinney_bucket_release(m, bucket);
  return false;
}

static bool keep(spinney_matcher *m, uint32_t index, const spinney_filter *filter, uint32_t id) {
  spinney_entry *entry = spinney_entry_at(m, index);
  switch ((spinney_kept)entry->kept) {
    case SPINNEY_NOWHERE: return true;
    case SPINNEY_LINE: return keep_in_line(m, entry, id);
    case SPINNEY_IDS: return keep_id(m, entry, id);
    case SPINNEY_PLACED: break;
  }
  return place(m, index, filter, id);
}

// ---- Making ----------------------------------------------------------------------------------------------------

static uint32_t hash_of(const uint8_t *body, uint32_t length, uint32_t schema) {
  return (uint32_t)spinney_hash(body, length, schema);
}

uint32_t spinney_entry_find(const spinney_matcher *m, const spinney_filter *filter, uint32_t schema) {
  uint32_t hash = hash_of(filter->body, filter->body_length, schema), at = hash, found;
  while ((found = spinney_table_next(&m->entry_table, hash, &at)) != SPINNEY_NONE) {
    const spinney_entry *entry = spinney_entry_at(m, found);
    if (entry->schema == schema && entry->length == filter->body_length &&
        !memcmp(entry->body, filter->body, filter->body_length))
      break;
  }
  return found;
}

static uint32_t new_entry(spinney_matcher *m) {
  uint32_t index = m->free_entry;
  if (index == SPINNEY_NONE)
    return spinney_pages_reserve(&m->entries, &m->memory, m->entries_end) ? m->entries_end++ : SPINNEY_NONE;
  m->free_entry = spinney_entry_at(m, index)->first_part;
  return index;
}

static void free_entry(spinney_matcher *m, uint32_t index) {
  spinney_entry *entry = spinney_entry_at(m, index);
  spinney_pool_give(&m->small, entry->body, entry->length);
  *entry = (spinney_entry){.first_part = m->free_entry};
  m->free_entry = index;
}

static void hold(spinney_matcher *m, uint32_t index, uint32_t id) {
  spinney_entry_at(m, index)->n_ids++;
  m->n_ids++;
  *(uint32_t *)spinney_page_item(&m->entry_of, id) = index;
}

bool spinney_entry_make(spinney_matcher *m, const spinney_filter *filter, uint32_t schema, uint32_t id) {
  uint8_t *body = spinney_pool_take(&m->small, filter->body_length);
  uint32_t index = body && spinney_table_reserve(&m->entry_table, &m->memory) ? new_entry(m) : SPINNEY_NONE;
  if (index == SPINNEY_NONE) {
    spinney_pool_give(&m->small, body, filter->body_length);
    return false;
  }
  memcpy(body, filter->body, filter->body_length);
  spinney_entry *entry = spinney_entry_at(m, index);
  *entry = (spinney_entry){.body = body, .schema = schema, .length = filter->body_length, .first_part = SPINNEY_NONE};
  entry->kept = way_to_keep(m, filter, entry);
  if (!keep(m, index, filter, id)) {
    free_entry(m, index);
    return false;
  }
  spinney_table_insert(&m->entry_table, hash_of(body, entry->length, schema), index);
  m->schemas[schema]->users++;
  m->n_entries++;
  hold(m, index, id);
  return true;
}

// ---- Sharing ---------------------------------------------------------------------------------------------------

// The item of an entry that was placed as an id becomes a part.
static bool become_part(spinney_matcher *m, uint32_t index) {
  spinney_entry *entry = spinney_entry_at(m, index);
  if (entry->first_part != SPINNEY_NONE) return true;
  uint32_t part = new_part(m, index, SPINNEY_BODY_FIXED, entry->bucket);
  if (part == SPINNEY_NONE) return false;
  spinney_place_replace(entry->bucket, first_box(m, entry), entry->id, part | SPINNEY_PART);
  entry->first_part = part;
  return true;
}

static bool join_group(spinney_matcher *m, uint32_t index, uint32_t id) {
  spinney_entry *entry = spinney_entry_at(m, index);
  if (entry->n_ids > 1) return spinney_run_insert(entry->group, &m->lines, 0, id);
  spinney_run *group = spinney_pool_take(&m->small, sizeof *group);
  if (!group) return false;
  *group = (spinney_run){0};
  if (spinney_run_insert(group, &m->lines, 0, entry->id) && spinney_run_insert(group, &m->lines, 0, id) &&
      become_part(m, index)) {
    entry->group = group;
    return true;
  }
  spinney_run_free(group, &m->lines);
  spinney_pool_give(&m->small, group, sizeof *group);
  return false;
}

static void leave_group(spinney_matcher *m, spinney_entry *entry, uint32_t id) {
  spinney_run *group = entry->group;
  spinney_run_erase(group, &m->lines, 0, id);
  if (entry->n_ids > 2) return;
  entry->id = group->parts[0].ids[0];
  spinney_run_free(group, &m->lines);
  spinney_pool_give(&m->small, group, sizeof *group);
}

bool spinney_entry_share(spinney_matcher *m, uint32_t index, uint32_t id) {
  spinney_entry *entry = spinney_entry_at(m, index);
  bool done = true;
  if (entry->kept == SPINNEY_LINE) done = keep_in_line(m, entry, id);
  if (entry->kept == SPINNEY_IDS) done = spinney_run_insert(&entry->bucket->ids, &m->lines, 0, id);
  if (entry->kept == SPINNEY_PLACED) done = join_group(m, index, id);
  if (done) hold(m, index, id);
  return done;
}

// ---- Leaving ---------------------------------------------------------------------------------------------------

static void leave_line(spinney_matcher *m, const spinney_entry *entry, uint32_t id) {
  spinney_predicate p = only_predicate(first_box(m, entry));
  spinney_line_erase(&m->attributes[p.attribute].line, &m->lines, p.low, p.high, id);
}

static void leave_ids(spinney_matcher *m, const spinney_entry *entry, uint32_t id) {
  spinney_run_erase(&entry->bucket->ids, &m->lines, 0, id);
  spinney_bucket_release(m, entry->bucket);
}

static void leave_place(spinney_matcher *m, spinney_entry *entry, uint32_t id) {
  if (entry->n_ids > 1) {
    leave_group(m, entry, id);
    return;
  }
  m->n_boxed -= spinney_load_u16(entry->body) > 1;
  if (entry->first_part != SPINNEY_NONE) {
    remove_parts(m, entry);
  } else {
    spinney_place_erase(m, entry->bucket, first_box(m, entry), id);
    spinney_bucket_release(m, entry->bucket);
  }
}

void spinney_entry_leave(spinney_matcher *m, uint32_t id) {
  uint32_t *index = spinney_page_item(&m->entry_of, id);
  spinney_entry *entry = spinney_entry_at(m, *index);
  if (entry->kept == SPINNEY_LINE) leave_line(m, entry, id);
  if (entry->kept == SPINNEY_IDS) leave_ids(m, entry, id);
  if (entry->kept == SPINNEY_PLACED) leave_place(m, entry, id);
  m->n_ids--;
  if (!--entry->n_ids) {
    spinney_table_erase(&m->entry_table, hash_of(entry->body, entry->length, entry->schema), *index);
    m->schemas[entry->schema]->users--;
    spinney_schema_release(m, entry->schema);
    m->n_entries--;
    free_entry(m, *index);
  }
  *index = SPINNEY_NONE;
}

void spinney_entries_free(spinney_matcher *m) {
  spinney_table_free(&m->entry_table, &m->memory);
  for (uint32_t i = 0; i < m->entries_end; i++) {
    spinney_entry *entry = spinney_entry_at(m, i);
    if (!entry->body) continue;
    spinney_pool_give(&m->small, entry->body, entry->length);
    if (entry->kept != SPINNEY_PLACED || entry->n_ids < 2) continue;
    spinney_run_free(entry->group, &m->lines);
    spinney_pool_give(&m->small, entry->group, sizeof *entry->group);
  }
  spinney_pages_free(&m->entries, &m->memory);
  spinney_pages_free(&m->parts, &m->memory);
  spinney_pages_free(&m->entry_of, &m->memory);
}
