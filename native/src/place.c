// place.c - which bucket is the best for a box, and items in and out of it.

#include "place.h"

#include <float.h>
#include <math.h>

// ---- Predicates ------------------------------------------------------------------------------------------------

// A predicate of a box, its attribute the matcher's.
static const uint8_t *read(const uint8_t *at, const uint32_t *map, spinney_predicate *predicate) {
  *predicate = (spinney_predicate){0};
  at = spinney_predicate_read(at, predicate);
  predicate->attribute = map[predicate->attribute];
  return at;
}

// The bucket for a predicate by itself. number holds the bytes of the key if it is one.
static bool key_of(const spinney_predicate *p, double *number, spinney_bucket_key *key) {
  *key = (spinney_bucket_key){.attribute = p->attribute, .length = p->length, .bytes = p->bytes};
  switch (p->kind) {
    case SPINNEY_RANGE:
      if (p->low != p->high) return false;
      *number = p->low + 0.0;  // -0 is 0
      key->kind = SPINNEY_BUCKET_NUMBER;
      key->length = sizeof *number;
      key->bytes = (const uint8_t *)number;
      return true;
    case SPINNEY_EQUALS: key->kind = SPINNEY_BUCKET_STRING; return true;
    case SPINNEY_PREFIX: key->kind = SPINNEY_BUCKET_PREFIX; return true;
    case SPINNEY_IS: key->kind = SPINNEY_BUCKET_BOOLEAN; return true;
    case SPINNEY_PRESENT: break;
  }
  *key = (spinney_bucket_key){.kind = SPINNEY_BUCKET_PRESENT, .attribute = p->attribute};
  return true;
}

static bool is_anchor(const spinney_bucket_key *key, const spinney_predicate *p) {
  if (key->attribute != p->attribute) return false;
  switch (key->kind) {
    case SPINNEY_BUCKET_NUMBER: return p->kind == SPINNEY_RANGE;
    case SPINNEY_BUCKET_STRING: return p->kind == SPINNEY_EQUALS;
    case SPINNEY_BUCKET_PREFIX: return p->kind == SPINNEY_PREFIX;
    case SPINNEY_BUCKET_BOOLEAN: return p->kind == SPINNEY_IS;
    default: return false;
  }
}

// ---- Coordinates -----------------------------------------------------------------------------------------------

static float round_down(double x) {
  if (x > FLT_MAX) return FLT_MAX;
  if (x < -FLT_MAX) return -INFINITY;
  float f = (float)x;
  return f > x ? nextafterf(f, -INFINITY) : f;
}

typedef struct shape {
  uint32_t n;
  spinney_coordinate coordinates[SPINNEY_COORDINATES];
  float point[SPINNEY_COORDINATES];
  uint32_t said;  // predicates that the coordinates say
} shape;

static void add_coordinate(shape *s, uint32_t attribute, uint8_t side, double bound) {
  uint32_t i = s->n++;
  for (; i && (s->coordinates[i - 1].attribute > attribute); i--) {
    s->coordinates[i] = s->coordinates[i - 1];
    s->point[i] = s->point[i - 1];
  }
  s->coordinates[i] = (spinney_coordinate){.attribute = attribute, .side = side};
  s->point[i] = round_down(bound);
}

// The coordinates of the ranges of a box that the bucket's own predicate does not say, by attribute and side, as many as
// there may be.
static void shape_of(const spinney_bucket *bucket, spinney_box box, shape *s) {
  s->n = s->said = 0;
  const uint8_t *at = box.bytes + 1;
  for (uint32_t i = 0; i < *box.bytes; i++) {
    spinney_predicate p;
    at = read(at, box.map, &p);
    if (p.kind != SPINNEY_RANGE || is_anchor(&bucket->key, &p)) continue;
    bool low = p.low > -(double)INFINITY, high = p.high < (double)INFINITY;
    if (s->n + low + high > SPINNEY_COORDINATES) continue;
    if (low) add_coordinate(s, p.attribute, 0, p.low);
    if (high) add_coordinate(s, p.attribute, 1, -p.high);
    s->said += low || high;
  }
}

bool spinney_place_is_whole(const spinney_bucket *bucket, spinney_box box) {
  shape s;
  shape_of(bucket, box, &s);
  bool anchored = bucket->key.kind > SPINNEY_BUCKET_PRESENT;
  return s.n && s.said + anchored == *box.bytes;
}

// ---- Spaces ----------------------------------------------------------------------------------------------------

static bool has_shape(const spinney_space *space, const shape *s) {
  if (space->n_coordinates != s->n) return false;
  for (uint32_t c = 0; c < s->n; c++)
    if (space->coordinates[c].attribute != s->coordinates[c].attribute ||
        space->coordinates[c].side != s->coordinates[c].side)
      return false;
  return true;
}

static uint64_t mask_of(const shape *s) {
  uint64_t mask = 0;
  for (uint32_t c = 0; c < s->n; c++) mask |= UINT64_C(1) << s->coordinates[c].attribute % 64;
  return mask;
}

static spinney_space *find_space(const spinney_bucket *bucket, const shape *s) {
  uint64_t mask = mask_of(s);
  for (uint32_t i = 0; i < bucket->n_spaces; i++)
    if (bucket->spaces[i].mask == mask && has_shape(bucket->spaces[i].space, s)) return bucket->spaces[i].space;
  return NULL;
}

static bool reserve(spinney_matcher *m, void *array_of_pointer, uint32_t *capacity, uint32_t used, size_t item_size) {
  if (used < *capacity) return true;
  void *array;
  memcpy(&array, array_of_pointer, sizeof array);  // it may be a pointer to anything
  uint32_t wanted = *capacity + *capacity / 2 + 2;
  array = spinney_pool_resize(&m->small, array, *capacity * item_size, used * item_size, wanted * item_size);
  if (!array) return false;
  memcpy(array_of_pointer, &array, sizeof array);
  *capacity = wanted;
  return true;
}

static spinney_space *get_space(spinney_matcher *m, spinney_bucket *bucket, const shape *s) {
  spinney_space *space = find_space(bucket, s);
  if (space) return space;
  if (!reserve(m, &bucket->spaces, &bucket->spaces_capacity, bucket->n_spaces, sizeof *bucket->spaces)) return NULL;
  space = spinney_pool_take(&m->small, sizeof *space);
  if (!space) return NULL;
  space->n_coordinates = s->n;
  memcpy(space->coordinates, s->coordinates, sizeof space->coordinates);
  spinney_space_init(space);
  bucket->spaces[bucket->n_spaces++] = (spinney_bucket_space){mask_of(s), space};
  for (uint32_t c = 0; c < s->n; c++) m->attributes[s->coordinates[c].attribute].n_coordinates++;
  return space;
}

static void release_space(spinney_matcher *m, spinney_bucket *bucket, spinney_space *space) {
  if (space->count) return;
  uint32_t i = 0;
  while (bucket->spaces[i].space != space) i++;
  bucket->spaces[i] = bucket->spaces[--bucket->n_spaces];
  for (uint32_t c = 0; c < space->n_coordinates; c++) m->attributes[space->coordinates[c].attribute].n_coordinates--;
  spinney_space_free(space, &m->lines);
  spinney_pool_give(&m->small, space, sizeof *space);
}

static bool insert_into_space(spinney_matcher *m, spinney_bucket *bucket, const shape *s, uint32_t item) {
  spinney_space *space = get_space(m, bucket, s);
  if (!space) return false;
  bool done = spinney_space_insert(space, &m->lines, s->point, item);
  release_space(m, bucket, space);
  return done;
}

static void erase_from_space(spinney_matcher *m, spinney_bucket *bucket, const shape *s, uint32_t item) {
  spinney_space *space = find_space(bucket, s);
  spinney_space_erase(space, &m->lines, s->point, item);
  release_space(m, bucket, space);
}

// ---- Few, until there are more ---------------------------------------------------------------------------------

// Moves the few into spaces. false: no memory, and nothing changed.
static bool spread(spinney_matcher *m, spinney_bucket *bucket) {
  shape s;
  for (uint32_t i = 0; i < bucket->n_few; i++) {
    shape_of(bucket, spinney_item_box(m, bucket->few[i]), &s);
    if (insert_into_space(m, bucket, &s, bucket->few[i])) continue;
    while (i-- > 0) {
      shape_of(bucket, spinney_item_box(m, bucket->few[i]), &s);
      erase_from_space(m, bucket, &s, bucket->few[i]);
    }
    return false;
  }
  bucket->n_few = 0;
  bucket->spread = true;
  return true;
}

static bool insert_ranged(spinney_matcher *m, spinney_bucket *bucket, const shape *s, uint32_t item) {
  if (!bucket->spread && bucket->n_few == SPINNEY_FEW && !spread(m, bucket)) return false;
  if (bucket->spread) return insert_into_space(m, bucket, s, item);
  if (!reserve(m, &bucket->few, &bucket->few_capacity, bucket->n_few, sizeof *bucket->few)) return false;
  bucket->few[bucket->n_few++] = item;
  return true;
}

static uint32_t *find_few(const spinney_bucket *bucket, uint32_t item) {
  uint32_t *at = bucket->few;
  while (*at != item) at++;
  return at;
}

// ---- Items -----------------------------------------------------------------------------------------------------

static bool insert_rest(spinney_matcher *m, spinney_bucket *bucket, uint32_t item) {
  if (!reserve(m, &bucket->rest, &bucket->rest_capacity, bucket->n_rest, sizeof *bucket->rest)) return false;
  spinney_part_at(m, item & ~SPINNEY_PART)->at = bucket->n_rest;
  bucket->rest[bucket->n_rest++] = item;
  return true;
}

static void erase_rest(spinney_matcher *m, spinney_bucket *bucket, uint32_t item) {
  uint32_t at = spinney_part_at(m, item & ~SPINNEY_PART)->at, last = bucket->rest[--bucket->n_rest];
  bucket->rest[at] = last;
  spinney_part_at(m, last & ~SPINNEY_PART)->at = at;
}

bool spinney_place_insert(spinney_matcher *m, spinney_bucket *bucket, spinney_box box, uint32_t item) {
  shape s;
  shape_of(bucket, box, &s);
  bool done = s.n ? insert_ranged(m, bucket, &s, item) : insert_rest(m, bucket, item);
  bucket->n_items += done;
  return done;
}

void spinney_place_erase(spinney_matcher *m, spinney_bucket *bucket, spinney_box box, uint32_t item) {
  shape s;
  shape_of(bucket, box, &s);
  bucket->n_items--;
  if (!s.n) {
    erase_rest(m, bucket, item);
  } else if (bucket->spread) {
    erase_from_space(m, bucket, &s, item);
  } else {
    *find_few(bucket, item) = bucket->few[bucket->n_few - 1];
    bucket->n_few--;
  }
}

void spinney_place_replace(spinney_bucket *bucket, spinney_box box, uint32_t old_item, uint32_t new_item) {
  shape s;
  shape_of(bucket, box, &s);
  if (bucket->spread) {
    spinney_space_replace(find_space(bucket, &s), s.point, old_item, new_item);
  } else {
    *find_few(bucket, old_item) = new_item;
  }
}

// ---- Choosing a bucket -----------------------------------------------------------------------------------------

// The smaller the better: one value before a prefix, that before a boolean; ranges before mere presence.
enum { RANK_VALUE, RANK_PREFIX, RANK_BOOLEAN, RANK_RANGE, RANK_PRESENT, RANK_NONE };

typedef struct choice {
  uint32_t rank;
  uint32_t items;  // that share the bucket
  spinney_bucket_key key;
  double number;
} choice;

static uint32_t rank_of(const spinney_predicate *p) {
  switch (p->kind) {
    case SPINNEY_RANGE: return p->low == p->high ? RANK_VALUE : RANK_RANGE;
    case SPINNEY_EQUALS: return RANK_VALUE;
    case SPINNEY_PREFIX: return RANK_PREFIX;
    case SPINNEY_IS: return RANK_BOOLEAN;
    case SPINNEY_PRESENT: break;
  }
  return RANK_PRESENT;
}

static const spinney_bucket *existing(const spinney_matcher *m, const spinney_bucket_key *key) {
  const spinney_attribute_record *record = &m->attributes[key->attribute];
  if (key->kind == SPINNEY_BUCKET_PRESENT) return record->present;
  if (key->kind == SPINNEY_BUCKET_BOOLEAN) return record->booleans[*key->bytes];
  return spinney_bucket_find(m, key, spinney_bucket_hash(key));
}

static void consider(const spinney_matcher *m, const spinney_predicate *p, choice *best) {
  choice c = {.rank = rank_of(p)};
  if (c.rank > best->rank) return;
  if (!key_of(p, &c.number, &c.key))
    c.key = (spinney_bucket_key){.kind = SPINNEY_BUCKET_PRESENT, .attribute = p->attribute};
  const spinney_bucket *bucket = existing(m, &c.key);
  c.items = bucket ? bucket->n_items : 0;
  if (c.rank == best->rank && c.items >= best->items) return;
  *best = c;
  if (c.key.kind == SPINNEY_BUCKET_NUMBER) best->key.bytes = (const uint8_t *)&best->number;
}

// Boxes of one shape should share one space: the bucket of an attribute that has such a space already, if there is one.
static spinney_bucket *bucket_with_space(const spinney_matcher *m, spinney_box box) {
  static const spinney_bucket any = {.key = {.kind = SPINNEY_BUCKET_PRESENT, .attribute = SPINNEY_NONE}};
  shape s;
  shape_of(&any, box, &s);
  for (uint32_t c = 0; c < s.n; c++) {
    spinney_bucket *bucket = m->attributes[s.coordinates[c].attribute].present;
    if (bucket && find_space(bucket, &s)) return bucket;
  }
  return NULL;
}

spinney_bucket *spinney_place_choose(spinney_matcher *m, spinney_box box) {
  choice best = {.rank = RANK_NONE, .items = UINT32_MAX, .key = {.kind = SPINNEY_BUCKET_ALWAYS}};
  const uint8_t *at = box.bytes + 1;
  for (uint32_t i = 0; i < *box.bytes; i++) {
    spinney_predicate p;
    at = read(at, box.map, &p);
    consider(m, &p, &best);
  }
  spinney_bucket *bucket = best.rank == RANK_RANGE ? bucket_with_space(m, box) : NULL;
  return bucket ? bucket : spinney_bucket_get(m, &best.key);
}
