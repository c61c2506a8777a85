// memory.h - growing arrays, and a pool for the many small blocks of the index.

#ifndef SPINNEY_MEMORY_H
#define SPINNEY_MEMORY_H

#include "internal.h"

void spinney_memory_init(spinney_memory *memory, const spinney_allocator *allocator);

// Makes the array behind array_of_pointer (a pointer to the pointer) hold at least needed items, growing by half.
bool spinney_grow(spinney_memory *memory, void *array_of_pointer, uint32_t *capacity, size_t item_size, size_t needed);

// ---- Pool ------------------------------------------------------------------------------------------------------
//
// Blocks of up to SPINNEY_POOL_LARGEST bytes are cut from chunks and kept in one free list per size; larger ones come
// from the allocator. Chunks are returned when the pool is freed. Blocks are aligned to the granule.

enum { SPINNEY_POOL_LARGEST = 8192, SPINNEY_POOL_GRANULE = 16, SPINNEY_LINE_BYTES = 64 };

typedef struct spinney_pool {
  spinney_memory *memory;
  size_t granule;
  void **free_lists;  // one per size
  struct pool_chunk *chunks;
  uint8_t *unused;
  size_t unused_bytes;
  size_t chunk_bytes;  // in all
} spinney_pool;

// granule: SPINNEY_POOL_GRANULE, or SPINNEY_LINE_BYTES for blocks on cache lines.
bool spinney_pool_init(spinney_pool *pool, spinney_memory *memory, size_t granule);
void spinney_pool_free(spinney_pool *pool);

void *spinney_pool_take(spinney_pool *pool, size_t size);           // NULL: no memory
void spinney_pool_give(spinney_pool *pool, void *block, size_t size);  // NULL is nothing
// Moves the first used bytes into a block of the new size; NULL: no memory, and the old block stays.
void *spinney_pool_resize(spinney_pool *pool, void *block, size_t old_size, size_t used, size_t new_size);

#endif
