// space.c - points in and out of a space, and its nodes and routes.

#include "space.h"

#include <math.h>
#include <string.h>

enum { SPARSE = 8 };  // a space with fewer than 1/8 of the points its leaves could have is built anew

// ---- Nodes -----------------------------------------------------------------------------------------------------

static size_t node_bytes(const spinney_space *space, uint8_t level, uint32_t blocks) {
  return SPINNEY_NODE_HEADER + blocks * spinney_node_stride(space->n_coordinates, level) * sizeof(float);
}

static void clear_slots(const spinney_space *space, spinney_node *node, uint32_t begin) {
  for (uint32_t slot = begin; slot < node->blocks * SPINNEY_LANES; slot++)
    *spinney_node_at(node, space->n_coordinates, slot, 0) = NAN;
}

spinney_node *spinney_node_new(const spinney_space *space, spinney_pool *pool, uint8_t level, uint32_t blocks) {
  spinney_node *node = spinney_pool_take(pool, node_bytes(space, level, blocks));
  if (!node) return NULL;
  *node = (spinney_node){.level = level, .blocks = blocks};
  clear_slots(space, node, 0);
  return node;
}

void spinney_node_free(const spinney_space *space, spinney_pool *pool, spinney_node *node) {
  spinney_pool_give(pool, node, node_bytes(space, node->level, node->blocks));
}

static void point_to(spinney_space *space, spinney_node *node) {
  if (node->parent) {
    *spinney_node_child(node->parent, space->n_coordinates, node->slot) = node;
  } else {
    space->root = node;
  }
  if (!node->level) space->routes[node->route].leaf = node;
  for (uint32_t i = 0; node->level && i < node->count; i++)
    (*spinney_node_child(node, space->n_coordinates, i))->parent = node;
}

bool spinney_node_reserve(spinney_space *space, spinney_pool *pool, spinney_node **node, uint32_t needed) {
  spinney_node *old = *node;
  if (needed <= old->blocks * SPINNEY_LANES) return true;
  uint32_t blocks = old->blocks < SPINNEY_GROUP_BLOCKS ? old->blocks + 1 : old->blocks + old->blocks / 2;
  if (blocks * SPINNEY_LANES < needed) blocks = (needed + SPINNEY_LANES - 1) / SPINNEY_LANES;
  spinney_node *fresh = spinney_pool_take(pool, node_bytes(space, old->level, blocks));
  if (!fresh) return false;
  memcpy(fresh, old, node_bytes(space, old->level, old->blocks));
  fresh->blocks = blocks;
  clear_slots(space, fresh, fresh->count);
  point_to(space, fresh);
  spinney_node_free(space, pool, old);
  *node = fresh;
  return true;
}

static void put_point(const spinney_space *space, spinney_node *node, uint32_t slot, const float *point) {
  for (uint32_t c = 0; c < space->n_coordinates; c++)
    *spinney_node_at(node, space->n_coordinates, slot, c) = point[c];
}

void spinney_leaf_append(const spinney_space *space, spinney_node *leaf, const float *point, uint32_t item) {
  put_point(space, leaf, leaf->count, point);
  *spinney_node_item(leaf, space->n_coordinates, leaf->count) = item;
  leaf->count++;
}

// The least of each coordinate; the first is NaN if there is no point.
static void least(const spinney_space *space, const spinney_node *node, float *out) {
  bool any = false;
  for (uint32_t c = 0; c < space->n_coordinates; c++) {
    out[c] = INFINITY;
    for (uint32_t slot = 0; slot < node->count; slot++) {
      float value = *spinney_node_at(node, space->n_coordinates, slot, c);
      if (value < out[c]) out[c] = value;
      if (!c) any = any || value == value;
    }
  }
  if (!any) out[0] = NAN;
}

void spinney_node_append(const spinney_space *space, spinney_node *node, spinney_node *child) {
  float point[SPINNEY_COORDINATES];
  least(space, child, point);
  child->parent = node;
  child->slot = node->count;
  put_point(space, node, node->count, point);
  *spinney_node_child(node, space->n_coordinates, node->count) = child;
  node->count++;
}

void spinney_node_tighten(const spinney_space *space, spinney_node *node) {
  for (; node->parent; node = node->parent) {
    float point[SPINNEY_COORDINATES];
    least(space, node, point);
    bool changed = false;
    for (uint32_t c = 0; c < space->n_coordinates; c++)
      changed |= !(*spinney_node_at(node->parent, space->n_coordinates, node->slot, c) == point[c]);
    if (!changed) return;
    put_point(space, node->parent, node->slot, point);
  }
}

// The nodes above learn of one more point.
static void widen(const spinney_space *space, const spinney_node *node, const float *point) {
  bool changed = true;
  for (; changed && node->parent; node = node->parent) {
    changed = false;
    for (uint32_t c = 0; c < space->n_coordinates; c++) {
      float *known = spinney_node_at(node->parent, space->n_coordinates, node->slot, c);
      if (*known <= point[c]) continue;  // not if NaN
      *known = point[c];
      changed = true;
    }
  }
}

// ---- Routes ----------------------------------------------------------------------------------------------------

bool spinney_routes_reserve(spinney_space *space, spinney_pool *pool, uint32_t more) {
  if (space->n_routes + more <= space->routes_capacity) return true;
  uint32_t capacity = space->routes_capacity + space->routes_capacity / 2 + more;
  spinney_route *fresh = spinney_pool_resize(pool, space->routes, space->routes_capacity * sizeof *fresh,
                                             space->n_routes * sizeof *fresh, capacity * sizeof *fresh);
  if (!fresh) return false;
  space->routes = fresh;
  space->routes_capacity = capacity;
  return true;
}

uint32_t spinney_route_new(spinney_space *space, spinney_pool *pool) {
  uint32_t route = space->free_route;
  if (route != SPINNEY_NONE) {
    space->free_route = space->routes[route].child[0];
    return route;
  }
  return spinney_routes_reserve(space, pool, 1) ? space->n_routes++ : SPINNEY_NONE;
}

void spinney_route_free(spinney_space *space, uint32_t route) {
  space->routes[route].child[0] = space->free_route;
  space->free_route = route;
}

static spinney_node *leaf_of(const spinney_space *space, const float *point) {
  const spinney_route *route = space->routes;
  while (route->coordinate < SPINNEY_COORDINATES)
    route = &space->routes[route->child[point[route->coordinate] > route->at]];
  return route->leaf;
}

// ---- Splitting a leaf ------------------------------------------------------------------------------------------

static void sample_leaf(const spinney_space *space, const spinney_node *leaf, spinney_sample *sample) {
  uint32_t step = (leaf->count + SPINNEY_SAMPLE - 1) / SPINNEY_SAMPLE;
  sample->count = 0;
  for (uint32_t slot = 0; slot < leaf->count; slot += step, sample->count++)
    for (uint32_t c = 0; c < space->n_coordinates; c++)
      sample->values[c][sample->count] = *spinney_node_at(leaf, space->n_coordinates, slot, c);
}

static void get_point(const spinney_space *space, const spinney_node *node, uint32_t slot, float *point) {
  for (uint32_t c = 0; c < space->n_coordinates; c++)
    point[c] = *spinney_node_at(node, space->n_coordinates, slot, c);
}

static void cut_slot(const spinney_space *space, spinney_node *leaf, uint32_t slot) {
  float point[SPINNEY_COORDINATES];
  uint32_t last = leaf->count - 1;
  get_point(space, leaf, last, point);
  put_point(space, leaf, slot, point);
  *spinney_node_item(leaf, space->n_coordinates, slot) = *spinney_node_item(leaf, space->n_coordinates, last);
  *spinney_node_at(leaf, space->n_coordinates, last, 0) = NAN;
  leaf->count--;
}

static uint32_t count_right(const spinney_space *space, const spinney_node *leaf, spinney_split split) {
  uint32_t n = 0;
  for (uint32_t slot = 0; slot < leaf->count; slot++)
    n += *spinney_node_at(leaf, space->n_coordinates, slot, split.coordinate) > split.at;
  return n;
}

static void move_right(const spinney_space *space, spinney_node *left, spinney_node *right, spinney_split split) {
  for (uint32_t slot = left->count; slot-- > 0;) {
    float point[SPINNEY_COORDINATES];
    get_point(space, left, slot, point);
    if (!(point[split.coordinate] > split.at)) continue;
    spinney_leaf_append(space, right, point, *spinney_node_item(left, space->n_coordinates, slot));
    cut_slot(space, left, slot);
  }
}

static void set_leaf_route(spinney_space *space, uint32_t route, spinney_node *leaf) {
  space->routes[route] = (spinney_route){.coordinate = SPINNEY_COORDINATES, .leaf = leaf};
  leaf->route = route;
}

static void split_route(spinney_space *space, uint32_t route, spinney_split split, const uint32_t *children) {
  space->routes[route] = (spinney_route){
      .at = split.at, .coordinate = (uint8_t)split.coordinate, .child = {children[0], children[1]}};
}

// A page above the only leaf.
static bool raise(spinney_space *space, spinney_pool *pool) {
  spinney_node *leaf = space->root, *page = spinney_node_new(space, pool, 1, 1);
  if (!page) return false;
  page->route = leaf->route;
  spinney_node_append(space, page, leaf);
  space->root = page;
  return true;
}

static bool split_leaf(spinney_space *space, spinney_pool *pool, spinney_node *left, spinney_split split) {
  if (!left->parent && !raise(space, pool)) return false;
  spinney_node *page = left->parent;
  if (page->count == SPINNEY_PAGE_MOST) return spinney_space_rebuild(space, pool, page);
  if (!spinney_node_reserve(space, pool, &page, page->count + 1)) return false;
  spinney_node *right = spinney_node_new(space, pool, 0, count_right(space, left, split) / SPINNEY_LANES + 1);
  uint32_t children[2] = {spinney_route_new(space, pool), spinney_route_new(space, pool)};
  if (!right || children[0] == SPINNEY_NONE || children[1] == SPINNEY_NONE) {
    if (right) spinney_node_free(space, pool, right);
    for (int i = 0; i < 2; i++)
      if (children[i] != SPINNEY_NONE) spinney_route_free(space, children[i]);
    return false;
  }
  move_right(space, left, right, split);
  split_route(space, left->route, split, children);
  set_leaf_route(space, children[0], left);
  set_leaf_route(space, children[1], right);
  spinney_node_append(space, page, right);
  spinney_node_tighten(space, left);
  space->leaves++;
  return true;
}

// ---- Insert, erase, replace ------------------------------------------------------------------------------------

void spinney_space_init(spinney_space *space) {
  for (uint32_t c = 0; c < space->n_coordinates; c++) {
    space->coordinates[c].opposite = (uint8_t)c;
    for (uint32_t o = 0; o < space->n_coordinates; o++)
      if (o != c && space->coordinates[o].attribute == space->coordinates[c].attribute)
        space->coordinates[c].opposite = (uint8_t)o;
  }
  space->root = NULL;
  space->routes = NULL;
  space->n_routes = space->routes_capacity = space->count = space->leaves = 0;
  space->free_route = SPINNEY_NONE;
}

static void free_nodes(spinney_space *space, spinney_pool *pool) {
  for (spinney_node *node = space->root, *next; node; node = next) {
    if (node->level && node->count) {
      next = *spinney_node_child(node, space->n_coordinates, --node->count);
    } else {
      next = node->parent;
      spinney_node_free(space, pool, node);
    }
  }
}

void spinney_space_free(spinney_space *space, spinney_pool *pool) {
  free_nodes(space, pool);
  spinney_pool_give(pool, space->routes, space->routes_capacity * sizeof *space->routes);
  spinney_space_init(space);
}

static bool begin(spinney_space *space, spinney_pool *pool) {
  if (!spinney_routes_reserve(space, pool, 1)) return false;
  spinney_node *leaf = spinney_node_new(space, pool, 0, 1);
  if (!leaf) return false;
  space->n_routes = 1;
  set_leaf_route(space, 0, leaf);
  space->root = leaf;
  space->leaves = 1;
  return true;
}

// The leaf for the point, with room for it; NULL: no memory.
static spinney_node *leaf_with_room(spinney_space *space, spinney_pool *pool, const float *point) {
  if (!space->root && !begin(space, pool)) return NULL;
  for (;;) {
    spinney_node *leaf = leaf_of(space, point);
    if (leaf->count < leaf->blocks * SPINNEY_LANES) return leaf;
    spinney_sample sample;
    spinney_split split;
    if (leaf->count >= SPINNEY_LEAF_MOST) {
      sample_leaf(space, leaf, &sample);
      if (spinney_choose_split(space, &sample, &split)) {
        if (!split_leaf(space, pool, leaf, split)) return NULL;
        continue;
      }
    }
    return spinney_node_reserve(space, pool, &leaf, leaf->count + 1) ? leaf : NULL;
  }
}

bool spinney_space_insert(spinney_space *space, spinney_pool *pool, const float *point, uint32_t item) {
  spinney_node *leaf = leaf_with_room(space, pool, point);
  if (!leaf) {
    if (!space->count) spinney_space_free(space, pool);
    return false;
  }
  spinney_leaf_append(space, leaf, point, item);
  widen(space, leaf, point);
  space->count++;
  return true;
}

static uint32_t slot_of(const spinney_space *space, const spinney_node *leaf, uint32_t item) {
  uint32_t slot = 0;
  while (*spinney_node_item(leaf, space->n_coordinates, slot) != item) slot++;
  return slot;
}

void spinney_space_erase(spinney_space *space, spinney_pool *pool, const float *point, uint32_t item) {
  spinney_node *leaf = leaf_of(space, point);
  cut_slot(space, leaf, slot_of(space, leaf, item));
  if (!--space->count) {
    spinney_space_free(space, pool);
    return;
  }
  spinney_node_tighten(space, leaf);
  // Without memory for that it stays sparse, which is right too.
  if (space->leaves > SPARSE && space->count < space->leaves * (SPINNEY_LEAF_MOST / SPARSE))
    spinney_space_rebuild(space, pool, NULL);
}

void spinney_space_replace(spinney_space *space, const float *point, uint32_t old_item, uint32_t new_item) {
  spinney_node *leaf = leaf_of(space, point);
  *spinney_node_item(leaf, space->n_coordinates, slot_of(space, leaf, old_item)) = new_item;
}
