// space.h - boxes over several numbers: which hold the event's.
//
// A box is a point: its lows and its negated highs are coordinates, and it holds an event if every coordinate is <= the
// event's (a number, or a negated one). So "which boxes" is "which points are dominated by the query", for one-sided
// ranges too. Coordinates are floats rounded down, queries floats rounded up: what is found is checked in double unless
// it is certain.
//
// A space is a tree of three levels at most: a directory of pages, pages of leaves, leaves of points. In each node 16
// slots make a block, coordinate by coordinate, and an inner slot has the least of each coordinate below it: a subtree is
// left out if that is not dominated. The way of a point to its leaf is found by routes, a k-d tree over the coordinates.

#ifndef SPINNEY_SPACE_H
#define SPINNEY_SPACE_H

#include "memory.h"
#include "simd.h"

enum {
  SPINNEY_COORDINATES = 8,
  SPINNEY_LEAF_MOST = SPINNEY_LANES * SPINNEY_GROUP_BLOCKS,  // points, unless they can not be told apart
  SPINNEY_PAGE_MOST = SPINNEY_LANES * SPINNEY_GROUP_BLOCKS   // leaves
};

typedef struct spinney_node {
  struct spinney_node *parent;
  uint32_t slot;      // in the parent
  uint32_t count;     // slots in use; the first coordinate of the others is NaN
  uint32_t blocks;
  uint32_t route;     // where the ways to this node's points begin
  uint32_t reserved;  // leaves that building has promised to a page
  uint8_t level;      // 0 leaf, 1 page, 2 directory
} spinney_node;

enum { SPINNEY_NODE_HEADER = SPINNEY_LINE_BYTES };

typedef struct spinney_coordinate {
  uint32_t attribute;
  uint8_t side;      // 0: low, 1: high, negated
  uint8_t opposite;  // the coordinate of the other side, or this one's own index
} spinney_coordinate;

typedef struct spinney_route {
  float at;            // to child[0] if the coordinate is <= at, else to child[1]
  uint8_t coordinate;  // SPINNEY_COORDINATES: this is a leaf's
  union {
    uint32_t child[2];
    spinney_node *leaf;
  };
} spinney_route;

typedef struct spinney_space {
  uint32_t n_coordinates;
  spinney_coordinate coordinates[SPINNEY_COORDINATES];
  spinney_node *root;  // NULL: empty
  spinney_route *routes;  // [0] is the root's
  uint32_t n_routes, routes_capacity, free_route;
  uint32_t count;   // points
  uint32_t leaves;
} spinney_space;

void spinney_space_init(spinney_space *space);  // the coordinates are set already
void spinney_space_free(spinney_space *space, spinney_pool *pool);

// false: no memory, and nothing changed. Items are told apart by their value; the point and item of erase are there.
bool spinney_space_insert(spinney_space *space, spinney_pool *pool, const float *point, uint32_t item);
void spinney_space_erase(spinney_space *space, spinney_pool *pool, const float *point, uint32_t item);
void spinney_space_replace(spinney_space *space, const float *point, uint32_t old_item, uint32_t new_item);

// ---- Nodes, for searching and building -------------------------------------------------------------------------

static inline uint32_t spinney_node_rows(uint32_t n_coordinates, uint8_t level) {
  return n_coordinates + (level ? sizeof(spinney_node *) / sizeof(float) : 1);
}

static inline size_t spinney_node_stride(uint32_t n_coordinates, uint8_t level) {
  return (size_t)spinney_node_rows(n_coordinates, level) * SPINNEY_LANES;
}

static inline float *spinney_node_points(const spinney_node *node) {
  return (float *)(void *)((uint8_t *)node + SPINNEY_NODE_HEADER);
}

static inline float *spinney_node_block(const spinney_node *node, uint32_t n_coordinates, uint32_t slot) {
  return spinney_node_points(node) + slot / SPINNEY_LANES * spinney_node_stride(n_coordinates, node->level);
}

static inline float *spinney_node_at(const spinney_node *node, uint32_t n_coordinates, uint32_t slot, uint32_t c) {
  return spinney_node_block(node, n_coordinates, slot) + c * SPINNEY_LANES + slot % SPINNEY_LANES;
}

static inline uint32_t *spinney_node_item(const spinney_node *leaf, uint32_t n_coordinates, uint32_t slot) {
  return (uint32_t *)(void *)spinney_node_at(leaf, n_coordinates, slot, n_coordinates);
}

static inline spinney_node **spinney_node_child(const spinney_node *node, uint32_t n_coordinates, uint32_t slot) {
  float *rows = spinney_node_block(node, n_coordinates, slot) + n_coordinates * SPINNEY_LANES;
  return (spinney_node **)(void *)rows + slot % SPINNEY_LANES;
}

spinney_node *spinney_node_new(const spinney_space *space, spinney_pool *pool, uint8_t level, uint32_t blocks);
void spinney_node_free(const spinney_space *space, spinney_pool *pool, spinney_node *node);
// Makes room for needed slots; the node may move, and all that point to it follow.
bool spinney_node_reserve(spinney_space *space, spinney_pool *pool, spinney_node **node, uint32_t needed);
// There is room.
void spinney_leaf_append(const spinney_space *space, spinney_node *leaf, const float *point, uint32_t item);
void spinney_node_append(const spinney_space *space, spinney_node *node, spinney_node *child);
// Recomputes what the nodes above know of this one.
void spinney_node_tighten(const spinney_space *space, spinney_node *node);

// A free route, or SPINNEY_NONE: no memory.
uint32_t spinney_route_new(spinney_space *space, spinney_pool *pool);
void spinney_route_free(spinney_space *space, uint32_t route);
bool spinney_routes_reserve(spinney_space *space, spinney_pool *pool, uint32_t more);

// ---- Building (space_build.c) ----------------------------------------------------------------------------------

// Points by which to choose where to split.
enum { SPINNEY_SAMPLE = 32 };
typedef struct spinney_sample {
  float values[SPINNEY_COORDINATES][SPINNEY_SAMPLE];
  uint32_t count;
} spinney_sample;

typedef struct spinney_split {
  uint32_t coordinate;
  float at;
} spinney_split;

// false: the points are all the same.
bool spinney_choose_split(const spinney_space *space, const spinney_sample *sample, spinney_split *split);

// Builds anew what is below the page, or all if page is NULL, balanced. false: no memory, and nothing changed.
bool spinney_space_rebuild(spinney_space *space, spinney_pool *pool, spinney_node *page);

#endif
