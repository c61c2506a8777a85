// line.c - filters that are one range of one attribute.
//
// Ranges with two ends are kept in an interval tree. An inner node has a point; the ranges that hold it are there, once
// by low and once by -high, the others below or above. So a number left of the point is in all of them that begin up to
// it, and these are copied. A leaf has up to LEAF_MOST ranges and tests each.
// The tree is kept in balance by rebuilding a subtree whose one side became heavy, so that depth and mean cost of a
// change are logarithmic whatever the order of inserts and deletes.

#include "line.h"

#include <math.h>

enum { LEAF_MOST = 64, LEAF_FILL = 32, DEPTH_MOST = 192 };

typedef struct line_leaf {
  double low[LEAF_MOST];
  double minus_high[LEAF_MOST];
  uint32_t ids[LEAF_MOST];
} line_leaf;

typedef struct line_node {
  uint32_t weight;  // ranges in this subtree
  line_leaf *leaf;  // or, if NULL:
  double point;
  spinney_run by_low, by_minus_high;
  struct line_node *below, *above;
} line_node;

typedef struct range {
  double low, high;
  uint32_t id;
} range;

// ---- Nodes -----------------------------------------------------------------------------------------------------

static line_node *new_leaf(spinney_pool *pool) {
  line_node *node = spinney_pool_take(pool, sizeof *node);
  line_leaf *leaf = spinney_pool_take(pool, sizeof *leaf);
  if (!node || !leaf) {
    spinney_pool_give(pool, node, sizeof *node);
    spinney_pool_give(pool, leaf, sizeof *leaf);
    return NULL;
  }
  *node = (line_node){.leaf = leaf};
  return node;
}

static void free_node(line_node *node, spinney_pool *pool) {
  spinney_pool_give(pool, node->leaf, sizeof *node->leaf);
  spinney_run_free(&node->by_low, pool);
  spinney_run_free(&node->by_minus_high, pool);
  spinney_pool_give(pool, node, sizeof *node);
}

// Turns the tree to a list on the way, so that no stack is needed.
static void free_tree(line_node *node, spinney_pool *pool) {
  while (node) {
    line_node *below = node->below;
    if (!below) {
      line_node *above = node->above;
      free_node(node, pool);
      node = above;
    } else {
      node->below = below->above;
      below->above = node;
      node = below;
    }
  }
}

static void leaf_append(line_node *node, range r) {
  line_leaf *leaf = node->leaf;
  leaf->low[node->weight] = r.low;
  leaf->minus_high[node->weight] = -r.high;
  leaf->ids[node->weight++] = r.id;
}

static void leaf_erase(line_node *node, uint32_t id) {
  line_leaf *leaf = node->leaf;
  uint32_t at = 0, last = --node->weight;
  while (leaf->ids[at] != id) at++;
  leaf->low[at] = leaf->low[last];
  leaf->minus_high[at] = leaf->minus_high[last];
  leaf->ids[at] = leaf->ids[last];
}

static bool hold(line_node *node, spinney_pool *pool, range r) {
  if (!spinney_run_insert(&node->by_low, pool, r.low, r.id)) return false;
  if (spinney_run_insert(&node->by_minus_high, pool, -r.high, r.id)) return true;
  spinney_run_erase(&node->by_low, pool, r.low, r.id);
  return false;
}

// The side where the range belongs; NULL: it holds the point.
static line_node **side_of(line_node *node, double low, double high) {
  if (high < node->point) return &node->below;
  return low > node->point ? &node->above : NULL;
}

// ---- Building --------------------------------------------------------------------------------------------------

// One end of a range.
typedef struct range_end {
  double at;
  uint32_t id;
} range_end;

// Shell's sort, with Ciura's gaps and more: no memory, no recursion, and fast enough for a rare rebuild.
static void sort_ends(range_end *ends, size_t n, bool by_id) {
  static const size_t gaps[] = {1, 4, 10, 23, 57, 132, 301, 701, 1750, 3937, 8858, 19930, 44842, 100894, 227011};
  for (size_t g = sizeof gaps / sizeof *gaps; g-- > 0;) {
    size_t gap = gaps[g];
    for (size_t i = gap; i < n; i++) {
      range_end end = ends[i];
      size_t k = i;
      for (; k >= gap && (by_id ? ends[k - gap].id > end.id : ends[k - gap].at > end.at); k -= gap)
        ends[k] = ends[k - gap];
      ends[k] = end;
    }
  }
}

// The keys of a run by id.
static size_t list_ends(const spinney_run *run, range_end *ends) {
  size_t n = 0;
  for (uint32_t i = 0; i < run->n_parts; i++) {
    const run_part *part = &run->parts[i];
    const double *keys = spinney_run_keys(part);
    for (uint32_t k = 0; k < part->count; k++) ends[n++] = (range_end){keys[k], part->ids[k]};
  }
  sort_ends(ends, n, true);
  return n;
}

// The ranges at an inner node: both of its runs, sorted by id, side by side. ends has room for twice as many.
static size_t gather_held(const line_node *node, range *out, range_end *ends) {
  size_t n = list_ends(&node->by_low, ends);
  const range_end *lows = ends, *minus_highs = ends + n;
  list_ends(&node->by_minus_high, ends + n);
  for (size_t i = 0; i < n; i++) out[i] = (range){lows[i].at, -minus_highs[i].at, lows[i].id};
  return n;
}

static size_t gather_leaf(const line_node *node, range *out) {
  const line_leaf *leaf = node->leaf;
  for (uint32_t i = 0; i < node->weight; i++) out[i] = (range){leaf->low[i], -leaf->minus_high[i], leaf->ids[i]};
  return node->weight;
}

// Every range of the tree; false: too deep to be gathered (which takes changes without memory to balance).
static bool gather(const line_node *root, range *out, range_end *ends) {
  const line_node *stack[DEPTH_MOST];
  size_t depth = 0;
  stack[depth++] = root;
  while (depth) {
    const line_node *node = stack[--depth];
    if (node->leaf) {
      out += gather_leaf(node, out);
      continue;
    }
    if (depth + 2 > DEPTH_MOST) return false;
    out += gather_held(node, out, ends);
    stack[depth++] = node->below;
    stack[depth++] = node->above;
  }
  return true;
}

// The middle of all end points of a sample: no side gets more than about half.
static double middle(const range *ranges, size_t n) {
  enum { SAMPLE = 128 };
  range_end ends[2 * SAMPLE];
  size_t step = n / SAMPLE + 1, k = 0;
  for (size_t i = 0; i < n; i += step) {
    ends[k++] = (range_end){ranges[i].low, 0};
    ends[k++] = (range_end){ranges[i].high, 0};
  }
  sort_ends(ends, k, false);
  return ends[k / 2].at;
}

typedef struct job {
  line_node **where;
  range *ranges;
  size_t n;
} job;

// Puts the ranges that hold the node's point there and sorts the others: those below first. How many below; n_held is
// how many were put.
static bool distribute(line_node *node, spinney_pool *pool, job work, size_t *n_below, size_t *n_held) {
  size_t below = 0, held = 0;
  for (size_t i = 0; i < work.n; i++) {
    range r = work.ranges[i];
    line_node **side = side_of(node, r.low, r.high);
    if (!side) {
      if (!hold(node, pool, r)) return false;
      held++;
      continue;
    }
    if (side == &node->below) {
      work.ranges[i - held] = work.ranges[below];
      work.ranges[below++] = r;
    } else {
      work.ranges[i - held] = r;
    }
  }
  *n_below = below;
  *n_held = held;
  return true;
}

static bool build_leaf(job work, spinney_pool *pool) {
  line_node *node = *work.where = new_leaf(pool);
  if (!node) return false;
  for (size_t i = 0; i < work.n; i++) leaf_append(node, work.ranges[i]);
  return true;
}

static line_node *new_inner(spinney_pool *pool, double point, size_t weight) {
  line_node *node = spinney_pool_take(pool, sizeof *node);
  if (node) *node = (line_node){.point = point, .weight = (uint32_t)weight};
  return node;
}

// A balanced tree of the ranges, which are reordered; NULL: no memory.
static line_node *build(range *ranges, size_t n, spinney_pool *pool) {
  line_node *root = NULL;
  job stack[DEPTH_MOST];
  size_t depth = 0;
  stack[depth++] = (job){&root, ranges, n};
  while (depth) {
    job work = stack[--depth];
    if (work.n <= LEAF_FILL) {
      if (!build_leaf(work, pool)) return free_tree(root, pool), NULL;
      continue;
    }
    line_node *node = *work.where = new_inner(pool, middle(work.ranges, work.n), work.n);
    size_t below, held;
    if (!node || !distribute(node, pool, work, &below, &held)) return free_tree(root, pool), NULL;
    job high = {&node->above, work.ranges + below, work.n - held - below}, low = {&node->below, work.ranges, below};
    bool low_first = low.n < high.n;  // the smaller last: the stack stays logarithmic
    stack[depth++] = low_first ? high : low;
    stack[depth++] = low_first ? low : high;
  }
  return root;
}

// Replaces the subtree by a balanced one of the same ranges and one more, if there is one.
static bool rebuild(line_node **where, spinney_pool *pool, const range *more) {
  size_t n = (*where)->weight, ranges_bytes = (n + 1) * sizeof(range), ends_bytes = 2 * (n + 1) * sizeof(range_end);
  range *ranges = spinney_pool_take(pool, ranges_bytes);
  range_end *ends = spinney_pool_take(pool, ends_bytes);
  line_node *fresh = NULL;
  if (ranges && ends && gather(*where, ranges, ends)) {
    if (more) ranges[n] = *more;
    fresh = build(ranges, n + (more != NULL), pool);
  }
  spinney_pool_give(pool, ranges, ranges_bytes);
  spinney_pool_give(pool, ends, ends_bytes);
  if (!fresh) return false;
  free_tree(*where, pool);
  *where = fresh;
  return true;
}

// ---- Balance ---------------------------------------------------------------------------------------------------

static bool is_unbalanced(const line_node *node) {
  if (node->leaf) return false;
  if (node->weight <= LEAF_FILL / 2) return true;
  uint32_t below = node->below->weight, above = node->above->weight;
  uint32_t heavy = below > above ? below : above;
  return heavy > node->weight / 4 * 3 + LEAF_MOST;
}

// Rebuilds the highest subtree on the way to low..high that lost its balance. Without memory it stays, which is right.
static void balance(line_node **where, spinney_pool *pool, double low, double high) {
  while (where && !(*where)->leaf) {
    if (is_unbalanced(*where)) {
      rebuild(where, pool, NULL);
      return;
    }
    where = side_of(*where, low, high);
  }
}

// Of the nodes above end.
static void add_weight(line_node *node, const line_node *end, double low, double high, int change) {
  while (node != end) {
    node->weight += (uint32_t)change;
    node = *side_of(node, low, high);
  }
}

// ---- Ranges with two ends --------------------------------------------------------------------------------------

// The node where the range is or would be.
static line_node **find(line_node **where, double low, double high) {
  for (line_node **next = where; next; next = (*where)->leaf ? NULL : side_of(*where, low, high)) where = next;
  return where;
}

static bool put(line_node **where, spinney_pool *pool, range r) {
  line_node *node = *where;
  if (!node->leaf) {
    if (!hold(node, pool, r)) return false;
    node->weight++;
    return true;
  }
  if (node->weight == LEAF_MOST) return rebuild(where, pool, &r);
  leaf_append(node, r);
  return true;
}

static bool insert_between(line_node **root, spinney_pool *pool, range r) {
  if (!*root && !(*root = new_leaf(pool))) return false;
  line_node **where = find(root, r.low, r.high), *node = *where;
  add_weight(*root, node, r.low, r.high, 1);
  if (!put(where, pool, r)) {
    add_weight(*root, node, r.low, r.high, -1);
    return false;
  }
  balance(root, pool, r.low, r.high);
  return true;
}

static void erase_between(line_node **root, spinney_pool *pool, range r) {
  line_node *node = *find(root, r.low, r.high);
  add_weight(*root, node, r.low, r.high, -1);
  if (node->leaf) {
    leaf_erase(node, r.id);
  } else {
    spinney_run_erase(&node->by_low, pool, r.low, r.id);
    spinney_run_erase(&node->by_minus_high, pool, -r.high, r.id);
    node->weight--;
  }
  if ((*root)->weight) {
    balance(root, pool, r.low, r.high);
  } else {
    free_tree(*root, pool);
    *root = NULL;
  }
}

static uint32_t *copy_between(const line_node *node, double x, const spinney_kernels *kernels, uint32_t *out) {
  while (!node->leaf) {
    bool below = x < node->point;
    out = spinney_run_copy_up_to(below ? &node->by_low : &node->by_minus_high, below ? x : -x, kernels, out);
    node = below ? node->below : node->above;
  }
  const line_leaf *leaf = node->leaf;
  return out + kernels->stab(leaf->low, leaf->minus_high, leaf->ids, node->weight, x, out);
}

// ---- All kinds of ranges ---------------------------------------------------------------------------------------

static spinney_run *run_for(spinney_line *line, double low, double high, double *key) {
  if (low == high) return *key = low, &line->points;
  if (high == (double)INFINITY) return *key = low, &line->from;
  if (low == -(double)INFINITY) return *key = -high, &line->to;
  return NULL;
}

bool spinney_line_insert(spinney_line *line, spinney_pool *pool, double low, double high, uint32_t id) {
  double key;
  spinney_run *run = run_for(line, low, high, &key);
  if (run) return spinney_run_insert(run, pool, key, id);
  return insert_between(&line->between, pool, (range){low, high, id});
}

void spinney_line_erase(spinney_line *line, spinney_pool *pool, double low, double high, uint32_t id) {
  double key;
  spinney_run *run = run_for(line, low, high, &key);
  if (run) {
    spinney_run_erase(run, pool, key, id);
  } else {
    erase_between(&line->between, pool, (range){low, high, id});
  }
}

void spinney_line_free(spinney_line *line, spinney_pool *pool) {
  spinney_run_free(&line->from, pool);
  spinney_run_free(&line->to, pool);
  spinney_run_free(&line->points, pool);
  free_tree(line->between, pool);
  *line = (spinney_line){0};
}

uint32_t *spinney_line_copy(const spinney_line *line, double x, const spinney_kernels *kernels, uint32_t *out) {
  if (line->from.n_parts) out = spinney_run_copy_up_to(&line->from, x, kernels, out);
  if (line->to.n_parts) out = spinney_run_copy_up_to(&line->to, -x, kernels, out);
  if (line->points.n_parts) out = spinney_run_copy_equal(&line->points, x, kernels, out);
  if (line->between) out = copy_between(line->between, x, kernels, out);
  return out;
}
