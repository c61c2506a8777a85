// matcher.c - the public face: make, add, remove, measure.

#include "matcher.h"

#include "entry.h"

// ---- Make and free ---------------------------------------------------------------------------------------------

static spinney_matcher *allocate(const spinney_allocator *allocator) {
  spinney_memory memory;
  spinney_memory_init(&memory, allocator);
  spinney_matcher *m = spinney_resize(&memory, NULL, 0, sizeof *m);
  if (!m) return NULL;
  memset(m, 0, sizeof *m);
  spinney_memory_init(&m->memory, allocator);
  atomic_store(&m->memory.bytes, sizeof *m);
  return m;
}

spinney_status spinney_matcher_new(const spinney_allocator *allocator, spinney_matcher **matcher,
                                   spinney_error *error) {
  spinney_matcher *m = allocate(allocator);
  if (!m) return spinney_fail_memory(error);
  m->kernels = spinney_kernels_of(spinney_simd_best());
  m->entries.item_size = sizeof(spinney_entry);
  m->parts.item_size = sizeof(spinney_part);
  m->entry_of.item_size = sizeof(uint32_t);
  m->free_entry = m->free_part = SPINNEY_NONE;
  if (!spinney_lock_init(&m->lock)) {
    spinney_resize(&m->memory, m, sizeof *m, 0);
    return spinney_fail(error, SPINNEY_NO_MEMORY, 0, "no mutex to be had");
  }
  if (!spinney_pool_init(&m->small, &m->memory, SPINNEY_POOL_GRANULE) ||
      !spinney_pool_init(&m->lines, &m->memory, SPINNEY_LINE_BYTES)) {
    spinney_matcher_free(m);
    return spinney_fail_memory(error);
  }
  *matcher = m;
  return SPINNEY_OK;
}

void spinney_matcher_free(spinney_matcher *m) {
  if (!m) return;
  spinney_buckets_free(m);
  spinney_entries_free(m);
  spinney_schemas_free(m);
  spinney_attributes_free(m);
  spinney_pool_free(&m->small);
  spinney_pool_free(&m->lines);
  spinney_lock_free(&m->lock);
  spinney_resize(&m->memory, m, sizeof *m, 0);
}

// ---- Attributes ------------------------------------------------------------------------------------------------

spinney_status spinney_attribute(spinney_matcher *m, const char *name, size_t length, uint32_t *attribute,
                                 spinney_error *error) {
  if (length > UINT16_MAX) return spinney_fail(error, SPINNEY_BAD_FILTER, UINT16_MAX, "the attribute's name is too long");
  spinney_lock_write(&m->lock);
  uint32_t found = spinney_attribute_get(m, (const uint8_t *)name, (uint32_t)length);
  spinney_unlock_write(&m->lock);
  if (found == SPINNEY_NONE) return spinney_fail_memory(error);
  *attribute = found;
  return SPINNEY_OK;
}

// ---- Add and remove --------------------------------------------------------------------------------------------

static bool has_id(const spinney_matcher *m, uint32_t id) {
  return spinney_pages_have(&m->entry_of, id) && *(uint32_t *)spinney_page_item(&m->entry_of, id) != SPINNEY_NONE;
}

static spinney_status keep(spinney_matcher *m, uint32_t id, const spinney_filter *filter, spinney_error *error) {
  uint32_t schema, n_attributes = m->n_attributes;
  spinney_status status = spinney_schema_get(m, filter, &schema, error);
  if (status != SPINNEY_OK) return status;
  uint32_t entry = spinney_entry_find(m, filter, schema);
  bool done = entry == SPINNEY_NONE ? spinney_entry_make(m, filter, schema, id) : spinney_entry_share(m, entry, id);
  if (done) return SPINNEY_OK;
  spinney_schema_release(m, schema);
  if (!m->schemas[schema]) spinney_attributes_truncate(m, n_attributes);
  return spinney_fail_memory(error);
}

static spinney_status add(spinney_matcher *m, uint32_t id, const spinney_filter *filter, spinney_error *error) {
  if (has_id(m, id)) return spinney_fail(error, SPINNEY_BAD_ID, 0, "id %lu is there already", (unsigned long)id);
  if (!spinney_pages_reserve(&m->entry_of, &m->memory, id)) return spinney_fail_memory(error);
  return keep(m, id, filter, error);
}

spinney_status spinney_add(spinney_matcher *m, uint32_t id, const uint8_t *bytes, size_t length, spinney_error *error) {
  spinney_filter filter;
  spinney_status status = spinney_filter_read(bytes, length, &filter, error);
  if (status != SPINNEY_OK) return status;
  if (id > SPINNEY_MAX_ID) return spinney_fail(error, SPINNEY_BAD_ID, 0, "ids must be below 2 to the 31st");
  spinney_lock_write(&m->lock);
  status = add(m, id, &filter, error);
  spinney_unlock_write(&m->lock);
  return status;
}

spinney_status spinney_remove(spinney_matcher *m, uint32_t id, spinney_error *error) {
  spinney_lock_write(&m->lock);
  bool there = has_id(m, id);
  if (there) spinney_entry_leave(m, id);
  spinney_unlock_write(&m->lock);
  if (there) return SPINNEY_OK;
  return spinney_fail(error, SPINNEY_BAD_ID, 0, "id %lu is not there", (unsigned long)id);
}

// ---- Measure and choose ----------------------------------------------------------------------------------------

// Entries that every event looks at; one may have several boxes that always hold.
static uint64_t count_scanned(const spinney_matcher *m) {
  uint64_t n = 0;
  for (uint32_t i = 0; m->always && i < m->always->n_rest; i++) {
    uint32_t part = m->always->rest[i] & ~SPINNEY_PART;
    uint32_t first = spinney_entry_at(m, spinney_part_at(m, part)->entry)->first_part;
    while (spinney_part_at(m, first)->bucket != m->always) first = spinney_part_at(m, first)->next;
    n += first == part;
  }
  return n;
}

void spinney_matcher_stats(spinney_matcher *m, spinney_stats *stats) {
  spinney_lock_write(&m->lock);
  uint64_t scanned = count_scanned(m);
  *stats = (spinney_stats){.ids = m->n_ids,
                           .entries = m->n_entries,
                           .indexed = m->n_entries - scanned,
                           .scanned = scanned,
                           .attributes = m->n_attributes,
                           .bytes = atomic_load(&m->memory.bytes)};
  spinney_unlock_write(&m->lock);
}

spinney_status spinney_matcher_use(spinney_matcher *m, spinney_simd simd, spinney_error *error) {
  const spinney_kernels *kernels = spinney_kernels_of(simd);
  if (!kernels)
    return spinney_fail(error, SPINNEY_BAD_ID, 0, "%s is not to be had on this machine", spinney_simd_name(simd));
  spinney_lock_write(&m->lock);
  m->kernels = kernels;
  spinney_unlock_write(&m->lock);
  return SPINNEY_OK;
}
