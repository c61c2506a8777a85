// pool.c - small blocks without an allocator's overhead for each.

#include <string.h>

#include "memory.h"

// A chunk is a sixteenth of what there is: little is unused, and chunks stay few.
enum { CHUNK_LEAST = 4096, CHUNK_MOST = 1 << 20, CHUNK_SHARE = 16 };

typedef struct pool_chunk {
  struct pool_chunk *next;
  size_t size;
} pool_chunk;

static size_t rounded(const spinney_pool *pool, size_t size) {
  return (size + pool->granule - 1) / pool->granule * pool->granule;
}

static size_t list_of(const spinney_pool *pool, size_t rounded_size) { return rounded_size / pool->granule; }

static size_t lists_bytes(const spinney_pool *pool) {
  return (list_of(pool, SPINNEY_POOL_LARGEST) + 1) * sizeof(void *);
}

bool spinney_pool_init(spinney_pool *pool, spinney_memory *memory, size_t granule) {
  *pool = (spinney_pool){.memory = memory, .granule = granule};
  pool->free_lists = spinney_resize(memory, NULL, 0, lists_bytes(pool));
  if (!pool->free_lists) return false;
  memset(pool->free_lists, 0, lists_bytes(pool));
  return true;
}

void spinney_pool_free(spinney_pool *pool) {
  if (!pool->free_lists) return;
  for (pool_chunk *chunk = pool->chunks, *next; chunk; chunk = next) {
    next = chunk->next;
    spinney_resize(pool->memory, chunk, chunk->size, 0);
  }
  spinney_resize(pool->memory, pool->free_lists, lists_bytes(pool), 0);
}

static void push(spinney_pool *pool, void *block, size_t rounded_size) {
  void **list = &pool->free_lists[list_of(pool, rounded_size)];
  memcpy(block, list, sizeof *list);
  *list = block;
}

// What is left of the chunk goes to the free lists, so that nothing is lost.
static void retire_unused(spinney_pool *pool) {
  while (pool->unused_bytes >= pool->granule) {
    size_t size = pool->unused_bytes < SPINNEY_POOL_LARGEST ? pool->unused_bytes : SPINNEY_POOL_LARGEST;
    size -= size % pool->granule;
    push(pool, pool->unused, size);
    pool->unused += size;
    pool->unused_bytes -= size;
  }
}

static bool add_chunk(spinney_pool *pool, size_t at_least) {
  size_t size = pool->chunk_bytes / CHUNK_SHARE;
  if (size < CHUNK_LEAST) size = CHUNK_LEAST;
  if (size > CHUNK_MOST) size = CHUNK_MOST;
  if (size < at_least + 2 * SPINNEY_LINE_BYTES) size = at_least + 2 * SPINNEY_LINE_BYTES;
  pool_chunk *chunk = spinney_resize(pool->memory, NULL, 0, size);
  if (!chunk) return false;
  retire_unused(pool);
  *chunk = (pool_chunk){.next = pool->chunks, .size = size};
  pool->chunks = chunk;
  uintptr_t end = (uintptr_t)chunk + size, start = (uintptr_t)chunk + sizeof *chunk;
  start = (start + pool->granule - 1) / pool->granule * pool->granule;
  pool->unused = (uint8_t *)chunk + (start - (uintptr_t)chunk);
  pool->unused_bytes = end - start;
  pool->chunk_bytes += size;
  return true;
}

void *spinney_pool_take(spinney_pool *pool, size_t size) {
  size = rounded(pool, size);
  if (size > SPINNEY_POOL_LARGEST) return spinney_resize(pool->memory, NULL, 0, size);
  void **list = &pool->free_lists[list_of(pool, size)];
  if (*list) {
    void *block = *list;
    memcpy(list, block, sizeof *list);
    return block;
  }
  if (pool->unused_bytes < size && !add_chunk(pool, size)) return NULL;
  void *block = pool->unused;
  pool->unused += size;
  pool->unused_bytes -= size;
  return block;
}

void spinney_pool_give(spinney_pool *pool, void *block, size_t size) {
  if (!block) return;
  size = rounded(pool, size);
  if (size > SPINNEY_POOL_LARGEST) {
    spinney_resize(pool->memory, block, size, 0);
  } else {
    push(pool, block, size);
  }
}

void *spinney_pool_resize(spinney_pool *pool, void *block, size_t old_size, size_t used, size_t new_size) {
  if (rounded(pool, old_size) == rounded(pool, new_size) && block) return block;
  void *fresh = spinney_pool_take(pool, new_size);
  if (!fresh) return NULL;
  if (used) memcpy(fresh, block, used);
  spinney_pool_give(pool, block, old_size);
  return fresh;
}
