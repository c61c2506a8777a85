// schema.c - the attributes of a matcher, and the heads of its filters.

#include "matcher.h"

// ---- Attributes ------------------------------------------------------------------------------------------------

static uint32_t find(const spinney_matcher *m, const void *name, size_t length, uint32_t hash) {
  uint32_t at = hash, found;
  while ((found = spinney_table_next(&m->attribute_table, hash, &at)) != SPINNEY_NONE) {
    const spinney_attribute_record *record = &m->attributes[found];
    if (record->length == length && (!length || !memcmp(record->name, name, length))) break;
  }
  return found;
}

uint32_t spinney_attribute_find(const spinney_matcher *m, const char *name, size_t length) {
  return find(m, name, length, (uint32_t)spinney_hash(name, length, 0));
}

uint32_t spinney_attribute_get(spinney_matcher *m, const uint8_t *name, uint32_t length) {
  uint32_t hash = (uint32_t)spinney_hash(name, length, 0), found = find(m, name, length, hash);
  if (found != SPINNEY_NONE) return found;
  if (!spinney_grow(&m->memory, &m->attributes, &m->attributes_capacity, sizeof *m->attributes,
                    (size_t)m->n_attributes + 1) ||
      !spinney_table_reserve(&m->attribute_table, &m->memory))
    return SPINNEY_NONE;
  uint8_t *copy = spinney_pool_take(&m->small, length + 1);
  if (!copy) return SPINNEY_NONE;
  if (length) memcpy(copy, name, length);
  m->attributes[m->n_attributes] = (spinney_attribute_record){.name = copy, .length = length, .hash = hash};
  spinney_table_insert(&m->attribute_table, hash, m->n_attributes);
  return m->n_attributes++;
}

static void free_attribute(spinney_matcher *m, spinney_attribute_record *record) {
  spinney_pool_give(&m->small, record->name, record->length + 1);
  spinney_pool_give(&m->small, record->prefixes, record->prefixes_capacity * sizeof *record->prefixes);
  spinney_line_free(&record->line, &m->lines);
}

void spinney_attributes_truncate(spinney_matcher *m, uint32_t n) {
  while (m->n_attributes > n) {
    spinney_attribute_record *record = &m->attributes[--m->n_attributes];
    spinney_table_erase(&m->attribute_table, record->hash, m->n_attributes);
    free_attribute(m, record);
  }
}

void spinney_attributes_free(spinney_matcher *m) {
  for (uint32_t i = 0; i < m->n_attributes; i++) free_attribute(m, &m->attributes[i]);
  spinney_resize(&m->memory, m->attributes, m->attributes_capacity * sizeof *m->attributes, 0);
  spinney_table_free(&m->attribute_table, &m->memory);
}

// ---- Schemas ---------------------------------------------------------------------------------------------------

static uint32_t find_schema(const spinney_matcher *m, const spinney_filter *filter, uint32_t hash) {
  uint32_t at = hash, found;
  while ((found = spinney_table_next(&m->schema_table, hash, &at)) != SPINNEY_NONE) {
    const spinney_schema *schema = m->schemas[found];
    if (schema->length == filter->head_length && !memcmp(schema->head, filter->head, schema->length)) break;
  }
  return found;
}

static size_t map_bytes(const spinney_schema *schema) {
  return (schema->n_attributes + !schema->n_attributes) * sizeof *schema->map;
}

static void free_schema(spinney_matcher *m, spinney_schema *schema) {
  spinney_pool_give(&m->small, schema->map, map_bytes(schema));
  spinney_pool_give(&m->small, schema->head, schema->length);
  spinney_pool_give(&m->small, schema, sizeof *schema);
}

static spinney_schema *new_schema(spinney_matcher *m, const spinney_filter *filter, uint32_t hash) {
  spinney_schema *schema = spinney_pool_take(&m->small, sizeof *schema);
  if (!schema) return NULL;
  *schema = (spinney_schema){.length = filter->head_length, .hash = hash, .n_attributes = filter->n_attributes};
  schema->head = spinney_pool_take(&m->small, schema->length);
  schema->map = spinney_pool_take(&m->small, map_bytes(schema));
  if (schema->head && schema->map) {
    memcpy(schema->head, filter->head, schema->length);
    return schema;
  }
  free_schema(m, schema);
  return NULL;
}

// Gives every name its attribute, and refuses a name that is there twice.
static spinney_status map_attributes(spinney_matcher *m, spinney_schema *schema, spinney_error *error) {
  const uint8_t *at = schema->head + SPINNEY_HEAD_FIXED;
  m->mark++;
  for (uint32_t i = 0; i < schema->n_attributes; i++, at += 2 + spinney_load_u16(at)) {
    uint32_t attribute = schema->map[i] = spinney_attribute_get(m, at + 2, spinney_load_u16(at));
    if (attribute == SPINNEY_NONE) return spinney_fail_memory(error);
    if (m->attributes[attribute].mark == m->mark)
      return spinney_fail(error, SPINNEY_BAD_FILTER, (size_t)(at - schema->head), "an attribute is named twice");
    m->attributes[attribute].mark = m->mark;
  }
  return SPINNEY_OK;
}

static uint32_t free_index(const spinney_matcher *m) {
  uint32_t i = 0;
  if (!m->free_schemas) return m->n_schemas;
  while (m->schemas[i]) i++;
  return i;
}

static void keep_schema(spinney_matcher *m, spinney_schema *schema, uint32_t index) {
  if (index == m->n_schemas) {
    m->n_schemas++;
  } else {
    m->free_schemas--;
  }
  m->schemas[index] = schema;
  spinney_table_insert(&m->schema_table, schema->hash, index);
}

spinney_status spinney_schema_get(spinney_matcher *m, const spinney_filter *filter, uint32_t *index,
                                  spinney_error *error) {
  uint32_t hash = (uint32_t)spinney_hash(filter->head, filter->head_length, 0);
  *index = find_schema(m, filter, hash);
  if (*index != SPINNEY_NONE) return SPINNEY_OK;
  if (!spinney_grow(&m->memory, &m->schemas, &m->schemas_capacity, sizeof *m->schemas, (size_t)m->n_schemas + 1) ||
      !spinney_table_reserve(&m->schema_table, &m->memory))
    return spinney_fail_memory(error);
  spinney_schema *schema = new_schema(m, filter, hash);
  if (!schema) return spinney_fail_memory(error);
  uint32_t n_attributes = m->n_attributes;
  spinney_status status = map_attributes(m, schema, error);
  if (status != SPINNEY_OK) {
    spinney_attributes_truncate(m, n_attributes);
    free_schema(m, schema);
    return status;
  }
  *index = free_index(m);
  keep_schema(m, schema, *index);
  return SPINNEY_OK;
}

void spinney_schema_release(spinney_matcher *m, uint32_t index) {
  spinney_schema *schema = m->schemas[index];
  if (schema->users) return;
  spinney_table_erase(&m->schema_table, schema->hash, index);
  m->schemas[index] = NULL;
  m->free_schemas++;
  free_schema(m, schema);
}

void spinney_schemas_free(spinney_matcher *m) {
  for (uint32_t i = 0; i < m->n_schemas; i++)
    if (m->schemas[i]) free_schema(m, m->schemas[i]);
  spinney_resize(&m->memory, m->schemas, m->schemas_capacity * sizeof *m->schemas, 0);
  spinney_table_free(&m->schema_table, &m->memory);
}
