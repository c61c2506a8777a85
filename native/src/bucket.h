// bucket.h - what is to be looked at if one predicate holds.

#ifndef SPINNEY_BUCKET_H
#define SPINNEY_BUCKET_H

#include "run.h"
#include "space.h"

typedef enum spinney_bucket_kind {
  SPINNEY_BUCKET_ALWAYS,
  SPINNEY_BUCKET_PRESENT,
  SPINNEY_BUCKET_BOOLEAN,
  SPINNEY_BUCKET_NUMBER,  // one number
  SPINNEY_BUCKET_STRING,  // one string
  SPINNEY_BUCKET_PREFIX
} spinney_bucket_kind;

// The predicate that a bucket stands for.
typedef struct spinney_bucket_key {
  spinney_bucket_kind kind;
  uint32_t attribute;
  uint32_t length;
  const uint8_t *bytes;
} spinney_bucket_key;

typedef struct spinney_bucket_space {
  uint64_t mask;  // of its attributes, modulo 64
  spinney_space *space;
} spinney_bucket_space;

enum { SPINNEY_FEW = 16 };

typedef struct spinney_bucket {
  spinney_bucket_key key;  // owns its bytes
  uint32_t hash;
  uint32_t index;   // in the matcher
  spinney_run ids;  // match; keys are 0
  uint32_t *few;    // items with ranges, while there are so few that each is checked
  uint32_t n_few, few_capacity;
  uint32_t *rest;  // parts without ranges: each is checked
  uint32_t n_rest, rest_capacity;
  spinney_bucket_space *spaces;  // items with ranges, when there were more
  uint32_t n_spaces, spaces_capacity;
  uint32_t n_items;  // in few, rest and spaces
  bool spread;       // few is not used any more
} spinney_bucket;

struct spinney_box;
uint32_t spinney_bucket_hash(const spinney_bucket_key *key);
spinney_bucket *spinney_bucket_find(const spinney_matcher *m, const spinney_bucket_key *key, uint32_t hash);
// Made if there is none; NULL: no memory.
spinney_bucket *spinney_bucket_get(spinney_matcher *m, const spinney_bucket_key *key);
// Frees the bucket if nothing is in it.
void spinney_bucket_release(spinney_matcher *m, spinney_bucket *bucket);
void spinney_buckets_free(spinney_matcher *m);

#endif
