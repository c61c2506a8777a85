// bucket.c - the buckets of a matcher by their predicates.

#include "bucket.h"

#include "matcher.h"

// ---- Finding ---------------------------------------------------------------------------------------------------

uint32_t spinney_bucket_hash(const spinney_bucket_key *key) {
  return (uint32_t)spinney_hash(key->bytes, key->length, (uint64_t)key->attribute << 8 | (uint64_t)key->kind);
}

static bool is_key(const spinney_bucket_key *a, const spinney_bucket_key *b) {
  return a->kind == b->kind && a->attribute == b->attribute && a->length == b->length &&
         (!a->length || !memcmp(a->bytes, b->bytes, a->length));
}

spinney_bucket *spinney_bucket_find(const spinney_matcher *m, const spinney_bucket_key *key, uint32_t hash) {
  uint32_t at = hash, found;
  while ((found = spinney_table_next(&m->bucket_table, hash, &at)) != SPINNEY_NONE)
    if (is_key(&m->buckets[found]->key, key)) return m->buckets[found];
  return NULL;
}

// ---- What attributes know of their buckets ---------------------------------------------------------------------

static bool is_fixed(spinney_bucket_kind kind) { return kind <= SPINNEY_BUCKET_BOOLEAN; }

// Where the matcher or an attribute points to a bucket that needs no hash.
static spinney_bucket **fixed_place(spinney_matcher *m, const spinney_bucket_key *key) {
  if (key->kind == SPINNEY_BUCKET_ALWAYS) return &m->always;
  spinney_attribute_record *record = &m->attributes[key->attribute];
  return key->kind == SPINNEY_BUCKET_PRESENT ? &record->present : &record->booleans[*key->bytes];
}

static bool count_prefix(spinney_matcher *m, const spinney_bucket_key *key) {
  spinney_attribute_record *record = &m->attributes[key->attribute];
  for (uint32_t i = 0; i < record->n_prefixes; i++)
    if (record->prefixes[i].length == key->length) return record->prefixes[i].buckets++, true;
  if (record->n_prefixes == record->prefixes_capacity) {
    uint32_t old = record->prefixes_capacity, capacity = old * 2 + 2;
    spinney_prefix *fresh = spinney_pool_resize(&m->small, record->prefixes, old * sizeof *fresh, old * sizeof *fresh,
                                                capacity * sizeof *fresh);
    if (!fresh) return false;
    record->prefixes = fresh;
    record->prefixes_capacity = capacity;
  }
  record->prefixes[record->n_prefixes++] = (spinney_prefix){key->length, 1};
  return true;
}

static void uncount_prefix(spinney_attribute_record *record, uint32_t length) {
  uint32_t i = 0;
  while (record->prefixes[i].length != length) i++;
  if (!--record->prefixes[i].buckets) record->prefixes[i] = record->prefixes[--record->n_prefixes];
}

static bool count_bucket(spinney_matcher *m, const spinney_bucket_key *key) {
  if (key->kind == SPINNEY_BUCKET_PREFIX) return count_prefix(m, key);
  m->attributes[key->attribute].n_numbers += key->kind == SPINNEY_BUCKET_NUMBER;
  m->attributes[key->attribute].n_strings += key->kind == SPINNEY_BUCKET_STRING;
  return true;
}

static void uncount_bucket(spinney_matcher *m, const spinney_bucket_key *key) {
  spinney_attribute_record *record = &m->attributes[key->attribute];
  record->n_numbers -= key->kind == SPINNEY_BUCKET_NUMBER;
  record->n_strings -= key->kind == SPINNEY_BUCKET_STRING;
  if (key->kind == SPINNEY_BUCKET_PREFIX) uncount_prefix(record, key->length);
}

// ---- Making and freeing ----------------------------------------------------------------------------------------

static spinney_bucket *new_bucket(spinney_matcher *m, const spinney_bucket_key *key) {
  spinney_bucket *bucket = spinney_pool_take(&m->small, sizeof *bucket);
  uint8_t *bytes = spinney_pool_take(&m->small, key->length + !key->length);
  if (!bucket || !bytes) {
    spinney_pool_give(&m->small, bucket, sizeof *bucket);
    spinney_pool_give(&m->small, bytes, key->length + !key->length);
    return NULL;
  }
  if (key->length) memcpy(bytes, key->bytes, key->length);
  *bucket = (spinney_bucket){.key = *key, .spread = key->kind == SPINNEY_BUCKET_PRESENT};
  bucket->key.bytes = bytes;
  return bucket;
}

static void free_bucket(spinney_matcher *m, spinney_bucket *bucket) {
  for (uint32_t i = 0; i < bucket->n_spaces; i++) {
    spinney_space_free(bucket->spaces[i].space, &m->lines);
    spinney_pool_give(&m->small, bucket->spaces[i].space, sizeof(spinney_space));
  }
  spinney_run_free(&bucket->ids, &m->lines);
  spinney_pool_give(&m->small, bucket->few, bucket->few_capacity * sizeof *bucket->few);
  spinney_pool_give(&m->small, bucket->rest, bucket->rest_capacity * sizeof *bucket->rest);
  spinney_pool_give(&m->small, bucket->spaces, bucket->spaces_capacity * sizeof *bucket->spaces);
  spinney_pool_give(&m->small, (void *)bucket->key.bytes, bucket->key.length + !bucket->key.length);
  spinney_pool_give(&m->small, bucket, sizeof *bucket);
}

static bool list_bucket(spinney_matcher *m, spinney_bucket *bucket, uint32_t hash) {
  if (!spinney_grow(&m->memory, &m->buckets, &m->buckets_capacity, sizeof *m->buckets, (size_t)m->n_buckets + 1) ||
      !spinney_table_reserve(&m->bucket_table, &m->memory) || !count_bucket(m, &bucket->key))
    return false;
  bucket->hash = hash;
  bucket->index = m->n_buckets++;
  m->buckets[bucket->index] = bucket;
  spinney_table_insert(&m->bucket_table, hash, bucket->index);
  return true;
}

spinney_bucket *spinney_bucket_get(spinney_matcher *m, const spinney_bucket_key *key) {
  spinney_bucket **place = is_fixed(key->kind) ? fixed_place(m, key) : NULL;
  uint32_t hash = place ? 0 : spinney_bucket_hash(key);
  spinney_bucket *bucket = place ? *place : spinney_bucket_find(m, key, hash);
  if (bucket || !(bucket = new_bucket(m, key))) return bucket;
  if (place) {
    *place = bucket;
  } else if (!list_bucket(m, bucket, hash)) {
    free_bucket(m, bucket);
    return NULL;
  }
  return bucket;
}

// The last bucket takes the free index.
static void unlist_bucket(spinney_matcher *m, const spinney_bucket *bucket) {
  spinney_table_erase(&m->bucket_table, bucket->hash, bucket->index);
  spinney_bucket *last = m->buckets[--m->n_buckets];
  if (last != bucket) {
    spinney_table_erase(&m->bucket_table, last->hash, last->index);
    last->index = bucket->index;
    m->buckets[last->index] = last;
    spinney_table_insert(&m->bucket_table, last->hash, last->index);
  }
  uncount_bucket(m, &bucket->key);
}

void spinney_bucket_release(spinney_matcher *m, spinney_bucket *bucket) {
  if (bucket->n_items || bucket->ids.n_parts) return;
  if (is_fixed(bucket->key.kind)) {
    *fixed_place(m, &bucket->key) = NULL;
  } else {
    unlist_bucket(m, bucket);
  }
  free_bucket(m, bucket);
}

void spinney_buckets_free(spinney_matcher *m) {
  for (uint32_t i = 0; i < m->n_buckets; i++) free_bucket(m, m->buckets[i]);
  if (m->always) free_bucket(m, m->always);
  for (uint32_t i = 0; i < m->n_attributes; i++) {
    spinney_attribute_record *record = &m->attributes[i];
    if (record->present) free_bucket(m, record->present);
    for (int b = 0; b < 2; b++)
      if (record->booleans[b]) free_bucket(m, record->booleans[b]);
  }
  spinney_resize(&m->memory, m->buckets, m->buckets_capacity * sizeof *m->buckets, 0);
  spinney_table_free(&m->bucket_table, &m->memory);
}
