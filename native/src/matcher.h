// matcher.h - what a matcher is made of.
//
// An *entry* is a distinct filter; ids that hold equal filters share it. Where an entry is kept:
//   LINE    one range of one attribute: each id is in the attribute's line;
//   IDS     one other predicate or none: each id is in the bucket of that predicate;
//   PLACED  anything else: each box has a place in one bucket, as an *item*;
//   NOWHERE what can not be true.
// An item is an id, if the entry has one box, no program, one id, and the index says all the box says; else it is a part.
// A *part* is one box of an entry, which is checked when it is found.

#ifndef SPINNEY_MATCHER_H
#define SPINNEY_MATCHER_H

#include "bucket.h"
#include "filter.h"
#include "line.h"
#include "lock.h"
#include "table.h"

enum { SPINNEY_FILTER_ATTRIBUTES = UINT16_MAX };
#define SPINNEY_PART UINT32_C(0x80000000)  // marks an item as a part
#define SPINNEY_MAX_ID (SPINNEY_PART - 1)

typedef struct spinney_prefix {
  uint32_t length;
  uint32_t buckets;  // prefixes of that length
} spinney_prefix;

// What is known of an attribute.
typedef struct spinney_attribute_record {
  uint8_t *name;
  uint32_t length;
  uint32_t hash;
  uint32_t mark;  // the last schema that named it
  uint32_t n_numbers, n_strings;  // buckets for one value
  uint32_t n_coordinates;         // of spaces
  uint32_t n_prefixes, prefixes_capacity;
  spinney_prefix *prefixes;
  spinney_bucket *present, *booleans[2];
  spinney_line line;
} spinney_attribute_record;

// The head of a filter, shared by all that begin so.
typedef struct spinney_schema {
  uint8_t *head;
  uint32_t length;
  uint32_t hash;
  uint32_t n_attributes;
  uint32_t users;  // entries
  uint32_t *map;   // the matcher's attribute for each of the filter's
} spinney_schema;

typedef enum spinney_kept { SPINNEY_NOWHERE, SPINNEY_LINE, SPINNEY_IDS, SPINNEY_PLACED } spinney_kept;

typedef struct spinney_entry {
  uint8_t *body;
  spinney_bucket *bucket;  // IDS; PLACED as an id
  union {
    uint32_t id;         // PLACED, n_ids = 1
    spinney_run *group;  // PLACED, n_ids > 1: keys are 0
  };
  uint32_t schema;
  uint32_t n_ids;
  uint32_t length : 24, kept : 8;
  uint32_t first_part;  // SPINNEY_NONE: PLACED as an id, or not PLACED. In a free entry: the next
} spinney_entry;

typedef struct spinney_part {
  spinney_bucket *bucket;
  uint32_t entry;
  uint32_t offset;  // of the box, in the body
  uint32_t at;      // in the bucket's rest
  uint32_t next;    // part of the entry; in a free part: free one
} spinney_part;

struct spinney_matcher {
  spinney_memory memory;
  spinney_lock lock;
  const spinney_kernels *kernels;
  spinney_pool small, lines;  // for most things; for what SIMD reads

  spinney_attribute_record *attributes;
  uint32_t n_attributes, attributes_capacity;
  spinney_table attribute_table;
  uint32_t mark;

  spinney_schema **schemas;
  uint32_t n_schemas, schemas_capacity, free_schemas;  // the free ones are NULL
  spinney_table schema_table;

  spinney_pages entries, parts, entry_of;  // entry_of: by id
  uint32_t entries_end, free_entry, parts_end, free_part;
  spinney_table entry_table;
  uint32_t n_ids, n_entries;
  uint32_t n_boxed;  // entries with more than one box

  spinney_bucket **buckets;
  uint32_t n_buckets, buckets_capacity;
  spinney_table bucket_table;
  spinney_bucket *always;
};

static inline spinney_entry *spinney_entry_at(const spinney_matcher *m, uint32_t entry) {
  return spinney_page_item(&m->entries, entry);
}

static inline spinney_part *spinney_part_at(const spinney_matcher *m, uint32_t part) {
  return spinney_page_item(&m->parts, part);
}

static inline spinney_entry *spinney_entry_of(const spinney_matcher *m, uint32_t id) {
  return spinney_entry_at(m, *(uint32_t *)spinney_page_item(&m->entry_of, id));
}

// A box with the meaning of its attributes.
typedef struct spinney_box {
  const uint8_t *bytes;
  const uint32_t *map;
} spinney_box;

static inline spinney_box spinney_item_box(const spinney_matcher *m, uint32_t item) {
  const spinney_part *part = item & SPINNEY_PART ? spinney_part_at(m, item & ~SPINNEY_PART) : NULL;
  const spinney_entry *entry = part ? spinney_entry_at(m, part->entry) : spinney_entry_of(m, item);
  return (spinney_box){entry->body + (part ? part->offset : SPINNEY_BODY_FIXED), m->schemas[entry->schema]->map};
}

// ---- Attributes and schemas (schema.c) -------------------------------------------------------------------------

// The attribute of that name, made if there is none; SPINNEY_NONE: no memory.
uint32_t spinney_attribute_get(spinney_matcher *m, const uint8_t *name, uint32_t length);
// Forgets the attributes from n on, which nothing knows yet.
void spinney_attributes_truncate(spinney_matcher *m, uint32_t n);
void spinney_attributes_free(spinney_matcher *m);

// The schema of the filter's head, made if there is none. On failure nothing changed.
spinney_status spinney_schema_get(spinney_matcher *m, const spinney_filter *filter, uint32_t *schema,
                                  spinney_error *error);
void spinney_schema_release(spinney_matcher *m, uint32_t schema);  // frees it if it has no users
void spinney_schemas_free(spinney_matcher *m);

#endif
