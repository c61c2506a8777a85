// run.c - ids sorted by a number, in chunks.
//
// A run is an array of parts, each a sorted chunk of up to PART_MOST pairs. Ids and keys lie apart, so that an answer
// reads ids only. A full part is split in halves; a part that became small is merged with a neighbour.

#include "run.h"

#include <string.h>

enum { PART_LEAST = 16, PART_MOST = 512, PART_SMALL = PART_MOST / 4, DIRECTORY_LEAST = 2 };

// ---- Search ----------------------------------------------------------------------------------------------------

enum { STRIDE = 16, FEW = 512 };

static inline size_t count_each(const double *keys, size_t n, double x, bool strict) {
  size_t found = 0;
  for (size_t i = 0; i < n; i++) found += strict ? keys[i] < x : keys[i] <= x;
  return found;
}

// How many of the sorted keys are <= x, or if strict, < x. In strides first: these reads do not wait for one another, as
// a bisection's do.
static inline size_t count(const double *keys, size_t n, double x, bool strict) {
  size_t begin = 0;
  while (n > FEW) {
    size_t half = n / 2;
    double key = keys[begin + half - 1];
    bool right = strict ? key < x : key <= x;
    begin += right ? half : 0;
    n = right ? n - half : half;
  }
  size_t steps = 0;
  for (size_t i = STRIDE - 1; i < n; i += STRIDE) steps += strict ? keys[begin + i] < x : keys[begin + i] <= x;
  if (n < STRIDE) return begin + count_each(keys + begin, n, x, strict);
  // The last stride may begin earlier, among keys that count: so its length is fixed, and the loop has no end to guess.
  size_t at = steps * STRIDE < n - STRIDE ? steps * STRIDE : n - STRIDE;
  return begin + at + count_each(keys + begin + at, STRIDE, x, strict);
}

static size_t count_up_to(const double *keys, size_t n, double x) { return count(keys, n, x, false); }
static size_t count_below(const double *keys, size_t n, double x) { return count(keys, n, x, true); }

static bool is_before(double key, uint32_t id, double other_key, uint32_t other_id) {
  return key < other_key || (key == other_key && id < other_id);
}

// The part where the pair is or would be: the last that does not begin after it.
static uint32_t part_of(const spinney_run *run, double key, uint32_t id) {
  uint32_t low = 0, high = run->n_parts;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    if (is_before(key, id, run->firsts[middle], run->parts[middle].ids[0])) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

// Where in the part the pair is or would be.
static uint32_t place_in(const run_part *part, double key, uint32_t id) {
  const double *keys = spinney_run_keys(part);
  uint32_t low = 0, high = part->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (is_before(keys[middle], part->ids[middle], key, id)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// ---- Parts -----------------------------------------------------------------------------------------------------

static size_t part_bytes(uint32_t capacity) { return capacity * (sizeof(uint32_t) + sizeof(double)); }

static bool part_new(run_part *part, spinney_pool *pool, uint32_t capacity) {
  *part = (run_part){spinney_pool_take(pool, part_bytes(capacity)), 0, capacity};
  return part->ids;
}

static void part_free(run_part *part, spinney_pool *pool) {
  spinney_pool_give(pool, part->ids, part_bytes(part->capacity));
}

static void part_append(run_part *to, const run_part *from, uint32_t begin, uint32_t count) {
  memcpy(to->ids + to->count, from->ids + begin, count * sizeof(uint32_t));
  memcpy(spinney_run_keys(to) + to->count, spinney_run_keys(from) + begin, count * sizeof(double));
  to->count += count;
}

static bool part_resize(run_part *part, spinney_pool *pool, uint32_t capacity) {
  run_part fresh;
  if (!part_new(&fresh, pool, capacity)) return false;
  part_append(&fresh, part, 0, part->count);
  part_free(part, pool);
  *part = fresh;
  return true;
}

static void part_put(run_part *part, uint32_t at, double key, uint32_t id) {
  double *keys = spinney_run_keys(part);
  uint32_t after = part->count - at;
  memmove(part->ids + at + 1, part->ids + at, after * sizeof *part->ids);
  memmove(keys + at + 1, keys + at, after * sizeof *keys);
  part->ids[at] = id;
  keys[at] = key;
  part->count++;
}

static void part_cut(run_part *part, uint32_t at) {
  double *keys = spinney_run_keys(part);
  uint32_t after = --part->count - at;
  memmove(part->ids + at, part->ids + at + 1, after * sizeof *part->ids);
  memmove(keys + at, keys + at + 1, after * sizeof *keys);
}

// ---- Directory -------------------------------------------------------------------------------------------------

static size_t directory_bytes(uint32_t capacity) { return capacity * (sizeof(double) + sizeof(run_part)); }

static bool directory_reserve(spinney_run *run, spinney_pool *pool) {
  if (run->n_parts < run->capacity) return true;
  uint32_t capacity = run->capacity ? run->capacity * 2 : DIRECTORY_LEAST;
  double *firsts = spinney_pool_take(pool, directory_bytes(capacity));
  if (!firsts) return false;
  run_part *parts = (run_part *)(void *)(firsts + capacity);
  if (run->n_parts) {
    memcpy(firsts, run->firsts, run->n_parts * sizeof *firsts);
    memcpy(parts, run->parts, run->n_parts * sizeof *parts);
  }
  spinney_pool_give(pool, run->firsts, directory_bytes(run->capacity));
  *run = (spinney_run){firsts, parts, run->n_parts, capacity};
  return true;
}

// There is room in the directory; the part is not empty.
static void directory_put(spinney_run *run, uint32_t at, run_part part) {
  uint32_t after = run->n_parts - at;
  memmove(run->firsts + at + 1, run->firsts + at, after * sizeof *run->firsts);
  memmove(run->parts + at + 1, run->parts + at, after * sizeof *run->parts);
  run->firsts[at] = spinney_run_keys(&part)[0];
  run->parts[at] = part;
  run->n_parts++;
}

static void directory_cut(spinney_run *run, spinney_pool *pool, uint32_t at) {
  part_free(&run->parts[at], pool);
  uint32_t after = --run->n_parts - at;
  memmove(run->firsts + at, run->firsts + at + 1, after * sizeof *run->firsts);
  memmove(run->parts + at, run->parts + at + 1, after * sizeof *run->parts);
  if (!run->n_parts) spinney_run_free(run, pool);
}

// ---- Insert ----------------------------------------------------------------------------------------------------

static bool insert_first(spinney_run *run, spinney_pool *pool, double key, uint32_t id) {
  run_part part;
  if (!directory_reserve(run, pool) || !part_new(&part, pool, PART_LEAST)) return false;
  part_put(&part, 0, key, id);
  directory_put(run, 0, part);
  return true;
}

static bool split(spinney_run *run, spinney_pool *pool, uint32_t at) {
  run_part right;
  if (!directory_reserve(run, pool) || !part_new(&right, pool, PART_MOST)) return false;
  run_part *left = &run->parts[at];
  uint32_t keep = left->count / 2;
  part_append(&right, left, keep, left->count - keep);
  left->count = keep;
  directory_put(run, at + 1, right);
  return true;
}

static bool make_room(spinney_run *run, spinney_pool *pool, uint32_t at) {
  run_part *part = &run->parts[at];
  if (part->count < part->capacity) return true;
  return part->capacity < PART_MOST ? part_resize(part, pool, part->capacity * 2) : split(run, pool, at);
}

bool spinney_run_insert(spinney_run *run, spinney_pool *pool, double key, uint32_t id) {
  if (!run->n_parts) return insert_first(run, pool, key, id);
  if (!make_room(run, pool, part_of(run, key, id))) return false;
  uint32_t at = part_of(run, key, id);  // again: the part may have been split
  run_part *part = &run->parts[at];
  part_put(part, place_in(part, key, id), key, id);
  run->firsts[at] = spinney_run_keys(part)[0];
  return true;
}

// ---- Erase -----------------------------------------------------------------------------------------------------

// Joins the part with the next if both fit well into one. Without memory for that they stay two, which is right too.
static void merge(spinney_run *run, spinney_pool *pool, uint32_t at) {
  if (at + 1 >= run->n_parts) return;
  run_part *left = &run->parts[at], *right = left + 1;
  uint32_t sum = left->count + right->count;
  if (sum > PART_MOST - PART_SMALL) return;
  if (left->capacity < sum && !part_resize(left, pool, PART_MOST)) return;
  part_append(left, right, 0, right->count);
  directory_cut(run, pool, at + 1);
}

void spinney_run_erase(spinney_run *run, spinney_pool *pool, double key, uint32_t id) {
  uint32_t at = part_of(run, key, id);
  run_part *part = &run->parts[at];
  part_cut(part, place_in(part, key, id));
  if (!part->count) {
    directory_cut(run, pool, at);
    return;
  }
  run->firsts[at] = spinney_run_keys(part)[0];
  if (part->count >= PART_SMALL) return;
  merge(run, pool, at);
  if (at) merge(run, pool, at - 1);
}

void spinney_run_free(spinney_run *run, spinney_pool *pool) {
  for (uint32_t i = 0; i < run->n_parts; i++) part_free(&run->parts[i], pool);
  spinney_pool_give(pool, run->firsts, directory_bytes(run->capacity));
  *run = (spinney_run){0};
}

// ---- Copy ------------------------------------------------------------------------------------------------------

static uint32_t *copy_parts(const spinney_run *run, uint32_t begin, uint32_t end, const spinney_kernels *kernels,
                            uint32_t *out) {
  for (uint32_t i = begin; i < end; i++) {
    kernels->copy(out, run->parts[i].ids, run->parts[i].count);
    out += run->parts[i].count;
  }
  return out;
}

uint32_t *spinney_run_copy_all(const spinney_run *run, const spinney_kernels *kernels, uint32_t *out) {
  return copy_parts(run, 0, run->n_parts, kernels, out);
}

uint32_t *spinney_run_copy_up_to(const spinney_run *run, double key, const spinney_kernels *kernels, uint32_t *out) {
  uint32_t begun = (uint32_t)count_up_to(run->firsts, run->n_parts, key);
  if (!begun) return out;
  out = copy_parts(run, 0, begun - 1, kernels, out);
  const run_part *last = &run->parts[begun - 1];
  size_t count = count_up_to(spinney_run_keys(last), last->count, key);
  kernels->copy(out, last->ids, count);
  return out + count;
}

uint32_t *spinney_run_copy_equal(const spinney_run *run, double key, const spinney_kernels *kernels, uint32_t *out) {
  size_t i = count_below(run->firsts, run->n_parts, key);
  for (i -= i > 0; i < run->n_parts && run->firsts[i] <= key; i++) {
    const run_part *part = &run->parts[i];
    const double *keys = spinney_run_keys(part);
    size_t begin = count_below(keys, part->count, key), end = count_up_to(keys, part->count, key);
    kernels->copy(out, part->ids + begin, end - begin);  // may read into the keys, which lie behind the ids
    out += end - begin;
  }
  return out;
}
