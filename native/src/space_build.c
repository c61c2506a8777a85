// space_build.c - where to split a space, and building a part of it anew, balanced.
//
// A full page is built anew as several; so is a space that became sparse or whose routes became long. The points are
// gathered, divided by routes until they fit, and only when everything is there the new part takes the old one's place.

#include <math.h>
#include <string.h>

#include "space.h"

enum {
  LEAF_FILL = 48,    // points of a leaf after building
  PAGE_FILL = 1536,  // points of a page after building
  JOBS = 80,         // more than 2 log2 of the most points
  WAY_SLACK = 24     // how much longer than 4 log2(pages) the way to a page may be
};

// ---- Choosing a split ------------------------------------------------------------------------------------------

static void sort(float *values, uint32_t n) {
  for (uint32_t i = 1; i < n; i++) {
    float value = values[i];
    uint32_t k = i;
    for (; k && values[k - 1] > value; k--) values[k] = values[k - 1];
    values[k] = value;
  }
}

static float least(const float *values, uint32_t n) {
  float found = values[0];
  for (uint32_t i = 1; i < n; i++) found = values[i] < found ? values[i] : found;
  return found;
}

// The share of events that miss what lies beyond `at`, if they are spread evenly over the sample's boxes.
static float missing_share(const spinney_space *space, const spinney_sample *sample, uint32_t c, const float *sorted,
                           float at) {
  uint32_t opposite = space->coordinates[c].opposite;
  float from = sorted[0], to = sorted[sample->count - 1];
  if (opposite != c) to = -least(sample->values[opposite], sample->count);
  float share = (at - from) / (to - from);
  return share >= 0 && share <= 1 ? share : 0.5f;
}

// Near the middle, so that something lies beyond; false: all are the same.
static bool middle(const float *sorted, uint32_t n, uint32_t *left) {
  uint32_t k = n / 2;
  while (k < n && sorted[k] == sorted[k - 1]) k++;
  if (k == n)
    for (k = n / 2; k && sorted[k - 1] == sorted[n - 1];) k--;
  *left = k;
  return k != 0;
}

bool spinney_choose_split(const spinney_space *space, const spinney_sample *sample, spinney_split *split) {
  float best = -1;
  if (sample->count < 2) return false;
  for (uint32_t c = 0; c < space->n_coordinates; c++) {
    float sorted[SPINNEY_SAMPLE];
    uint32_t left;
    memcpy(sorted, sample->values[c], sample->count * sizeof *sorted);
    sort(sorted, sample->count);
    if (!middle(sorted, sample->count, &left)) continue;
    float at = sorted[left - 1], beyond = (float)(sample->count - left);
    float gain = beyond * missing_share(space, sample, c, sorted, at);
    if (gain <= best) continue;
    best = gain;
    *split = (spinney_split){c, at};
  }
  return best >= 0;
}

// ---- Points to build from --------------------------------------------------------------------------------------

typedef struct points {
  uint32_t n, width;   // width: coordinates and the item
  float *rows;
  size_t bytes;
} points;

static float *row_of(const points *p, uint32_t i) { return p->rows + (size_t)i * p->width; }

static void swap_rows(const points *p, uint32_t i, uint32_t k) {
  float spare[SPINNEY_COORDINATES + 1];
  size_t bytes = p->width * sizeof *spare;
  memcpy(spare, row_of(p, i), bytes);
  memcpy(row_of(p, i), row_of(p, k), bytes);
  memcpy(row_of(p, k), spare, bytes);
}

static void gather_leaf(const spinney_space *space, const spinney_node *leaf, points *p) {
  for (uint32_t slot = 0; slot < leaf->count; slot++, p->n++) {
    float *row = row_of(p, p->n);
    for (uint32_t c = 0; c < space->n_coordinates; c++) row[c] = *spinney_node_at(leaf, space->n_coordinates, slot, c);
    memcpy(row + space->n_coordinates, spinney_node_item(leaf, space->n_coordinates, slot), sizeof(uint32_t));
  }
}

static void gather_page(const spinney_space *space, const spinney_node *page, points *p) {
  for (uint32_t i = 0; i < page->count; i++)
    gather_leaf(space, *spinney_node_child(page, space->n_coordinates, i), p);
}

static void gather(const spinney_space *space, const spinney_node *node, points *p) {
  if (node->level == 0) gather_leaf(space, node, p);
  if (node->level == 1) gather_page(space, node, p);
  for (uint32_t i = 0; node->level == 2 && i < node->count; i++)
    gather_page(space, *spinney_node_child(node, space->n_coordinates, i), p);
}

static uint32_t count_below(const spinney_space *space, const spinney_node *page) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < page->count; i++) n += (*spinney_node_child(page, space->n_coordinates, i))->count;
  return n;
}

static void take_sample(const spinney_space *space, const points *p, uint32_t begin, uint32_t n,
                        spinney_sample *sample) {
  uint32_t step = (n + SPINNEY_SAMPLE - 1) / SPINNEY_SAMPLE;
  sample->count = 0;
  for (uint32_t i = 0; i < n; i += step, sample->count++)
    for (uint32_t c = 0; c < space->n_coordinates; c++) sample->values[c][sample->count] = row_of(p, begin + i)[c];
}

// Puts the points up to the split first; how many.
static uint32_t divide(const points *p, uint32_t begin, uint32_t n, spinney_split split) {
  uint32_t left = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!(row_of(p, begin + i)[split.coordinate] > split.at)) swap_rows(p, begin + left++, begin + i);
  return left;
}

// ---- Building --------------------------------------------------------------------------------------------------

typedef struct job {
  uint32_t route, begin, n;
  spinney_node *page;  // NULL: not yet in one
} job;

typedef struct building {
  spinney_space *space;
  spinney_pool *pool;
  points points;
  spinney_node *pages;  // linked by parent
  uint32_t n_pages, leaves;
  uint32_t root;  // its route
  job jobs[JOBS];
  uint32_t n_jobs;
} building;

static bool build_leaf(building *b, job work) {
  uint32_t blocks = (work.n + SPINNEY_LANES - 1) / SPINNEY_LANES;
  spinney_node *leaf = spinney_node_new(b->space, b->pool, 0, blocks ? blocks : 1);
  if (!leaf) return false;
  for (uint32_t i = 0; i < work.n; i++) {
    const float *row = row_of(&b->points, work.begin + i);
    uint32_t item;
    memcpy(&item, row + b->space->n_coordinates, sizeof item);
    spinney_leaf_append(b->space, leaf, row, item);
  }
  b->space->routes[work.route] = (spinney_route){.coordinate = SPINNEY_COORDINATES, .leaf = leaf};
  leaf->route = work.route;
  spinney_node_append(b->space, work.page, leaf);
  b->leaves++;
  return true;
}

static spinney_node *begin_page(building *b, uint32_t route) {
  spinney_node *page = spinney_node_new(b->space, b->pool, 1, SPINNEY_GROUP_BLOCKS);
  if (!page) return NULL;
  page->route = route;
  page->reserved = 1;
  page->parent = b->pages;
  b->pages = page;
  b->n_pages++;
  return page;
}

static uint32_t new_route(building *b) {
  uint32_t route = spinney_route_new(b->space, b->pool);
  if (route == SPINNEY_NONE) return route;
  b->space->routes[route] = (spinney_route){.coordinate = SPINNEY_COORDINATES, .leaf = NULL};
  return route;
}

static bool build_split(building *b, job work, spinney_split split) {
  uint32_t left = new_route(b), right = left == SPINNEY_NONE ? left : new_route(b);
  if (right == SPINNEY_NONE) {
    if (left != SPINNEY_NONE) spinney_route_free(b->space, left);
    return false;
  }
  spinney_route *route = &b->space->routes[work.route];
  *route = (spinney_route){.at = split.at, .coordinate = (uint8_t)split.coordinate, .child = {left, right}};
  uint32_t n = divide(&b->points, work.begin, work.n, split);
  job low = {left, work.begin, n, work.page}, high = {right, work.begin + n, work.n - n, work.page};
  bool low_first = low.n < high.n;  // the smaller is taken first: so jobs stay few
  b->jobs[b->n_jobs++] = low_first ? high : low;
  b->jobs[b->n_jobs++] = low_first ? low : high;
  if (work.page) work.page->reserved++;
  return true;
}

static bool do_job(building *b, job work) {
  spinney_sample sample;
  spinney_split split;
  bool can_split = work.n > LEAF_FILL;
  if (can_split) {
    take_sample(b->space, &b->points, work.begin, work.n, &sample);
    can_split = spinney_choose_split(b->space, &sample, &split);
  }
  if (!work.page && (work.n <= PAGE_FILL || !can_split) && !(work.page = begin_page(b, work.route))) return false;
  if (work.page && work.page->reserved >= SPINNEY_PAGE_MOST) can_split = false;
  return can_split ? build_split(b, work, split) : build_leaf(b, work);
}

static bool build(building *b) {
  b->root = new_route(b);
  if (b->root == SPINNEY_NONE) return false;
  b->jobs[b->n_jobs++] = (job){b->root, 0, b->points.n, NULL};
  while (b->n_jobs) {
    job work = b->jobs[--b->n_jobs];
    if (!do_job(b, work)) return false;
  }
  return true;
}

// ---- Taking the old part's place -------------------------------------------------------------------------------

// Turns the routes to a list on the way, so that no stack is needed.
static void free_routes(spinney_space *space, uint32_t route) {
  while (route != SPINNEY_NONE) {
    spinney_route *at = &space->routes[route];
    if (at->coordinate >= SPINNEY_COORDINATES) {  // a leaf: becomes the end of the list
      *at = (spinney_route){.child = {SPINNEY_NONE, SPINNEY_NONE}};
    }
    uint32_t low = at->child[0], high = at->child[1];
    if (low == SPINNEY_NONE) {
      spinney_route_free(space, route);
      route = high;
      continue;
    }
    spinney_route *below = &space->routes[low];
    if (below->coordinate >= SPINNEY_COORDINATES) *below = (spinney_route){.child = {SPINNEY_NONE, SPINNEY_NONE}};
    at->child[0] = below->child[1];
    below->child[1] = route;
    route = low;
  }
}

static void free_page(const spinney_space *space, spinney_pool *pool, spinney_node *page) {
  for (uint32_t i = 0; i < page->count; i++)
    spinney_node_free(space, pool, *spinney_node_child(page, space->n_coordinates, i));
  spinney_node_free(space, pool, page);
}

static void undo(building *b) {
  for (spinney_node *page = b->pages, *next; page; page = next) {
    next = page->parent;
    free_page(b->space, b->pool, page);
  }
  if (b->root != SPINNEY_NONE) free_routes(b->space, b->root);
}

// The fresh root's route moves to where the old one was.
static void replace_route(building *b, uint32_t old) {
  spinney_route kept = b->space->routes[b->root];
  uint32_t children[2] = {SPINNEY_NONE, SPINNEY_NONE};
  if (b->space->routes[old].coordinate < SPINNEY_COORDINATES)
    memcpy(children, b->space->routes[old].child, sizeof children);
  for (int i = 0; i < 2; i++) free_routes(b->space, children[i]);
  b->space->routes[old] = kept;
  if (kept.coordinate >= SPINNEY_COORDINATES) kept.leaf->route = old;
  for (spinney_node *page = b->pages; page; page = page->parent)
    if (page->route == b->root) page->route = old;
  spinney_route_free(b->space, b->root);
}

static void free_all_nodes(spinney_space *space, spinney_pool *pool) {
  spinney_node *root = space->root;
  for (uint32_t i = 0; root->level == 2 && i < root->count; i++)
    free_page(space, pool, *spinney_node_child(root, space->n_coordinates, i));
  if (root->level == 1) {
    free_page(space, pool, root);
  } else {
    spinney_node_free(space, pool, root);
  }
}

// All anew: the first page, or a directory of all, becomes the root.
static void install_all(building *b, spinney_node *directory) {
  free_all_nodes(b->space, b->pool);
  spinney_node *page = b->pages, *next;
  b->space->root = directory ? directory : page;
  if (!directory) page->parent = NULL;
  for (; directory && page; page = next) {
    next = page->parent;
    spinney_node_append(b->space, directory, page);
  }
  b->space->leaves = b->leaves;
}

// One page anew: the first takes its slot, the others follow. The directory has room.
static void install_page(building *b, spinney_node *old, spinney_node *directory) {
  uint32_t slot = old->slot, count = directory->count;
  b->space->leaves += b->leaves - old->count;
  free_page(b->space, b->pool, old);
  spinney_node *page = b->pages, *next = page->parent;
  directory->count = slot;
  spinney_node_append(b->space, directory, page);
  directory->count = count;
  for (page = next; page; page = next) {
    next = page->parent;
    spinney_node_append(b->space, directory, page);
  }
}

static bool install(building *b, spinney_node *old) {
  spinney_node *directory = old ? old->parent : NULL;
  if (directory) {
    if (!spinney_node_reserve(b->space, b->pool, &directory, directory->count + b->n_pages)) return false;
    replace_route(b, old->route);
    install_page(b, old, directory);
    return true;
  }
  if (b->n_pages > 1) {
    directory = spinney_node_new(b->space, b->pool, 2, (b->n_pages + SPINNEY_LANES - 1) / SPINNEY_LANES);
    if (!directory) return false;
  }
  replace_route(b, 0);
  install_all(b, directory);
  return true;
}

// ---- Rebuilding ------------------------------------------------------------------------------------------------

// Whether pages were split off one side again and again, as sorted input does.
static bool has_long_way(const spinney_space *space, uint32_t route) {
  uint32_t pages = space->root->count, most = WAY_SLACK, length = 0;
  for (uint32_t n = pages; n; n /= 2) most += 4;
  const spinney_route *at = space->routes;
  if (space->root->level < 2) return false;
  // The way is that of any point in the page; its leaves are below its route.
  const spinney_node *page = NULL;
  for (uint32_t i = 0; i < pages && !page; i++) {
    const spinney_node *child = *spinney_node_child(space->root, space->n_coordinates, i);
    if (child->route == route) page = child;
  }
  float point[SPINNEY_COORDINATES];
  const spinney_node *leaf = page ? *spinney_node_child(page, space->n_coordinates, 0) : NULL;
  if (!leaf || !leaf->count) return false;
  for (uint32_t c = 0; c < space->n_coordinates; c++) point[c] = *spinney_node_at(leaf, space->n_coordinates, 0, c);
  for (; at != &space->routes[route]; length++) at = &space->routes[at->child[point[at->coordinate] > at->at]];
  return length > most;
}

bool spinney_space_rebuild(spinney_space *space, spinney_pool *pool, spinney_node *page) {
  if (page && (!page->parent || has_long_way(space, page->route))) page = NULL;
  uint32_t n = page ? count_below(space, page) : space->count;
  building b = {.space = space, .pool = pool, .root = SPINNEY_NONE};
  b.points.width = space->n_coordinates + 1;
  b.points.bytes = (size_t)n * b.points.width * sizeof(float);
  b.points.rows = spinney_pool_take(pool, b.points.bytes);
  if (!b.points.rows) return false;
  gather(space, page ? page : space->root, &b.points);
  bool done = build(&b) && install(&b, page);
  if (!done) undo(&b);
  spinney_pool_give(pool, b.points.rows, b.points.bytes);
  return done;
}
