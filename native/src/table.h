// table.h - hashing, a table from hash to index, and arrays in pages that never move.

#ifndef SPINNEY_TABLE_H
#define SPINNEY_TABLE_H

#include <string.h>

#include "memory.h"

// ---- Hash ------------------------------------------------------------------------------------------------------

static inline uint64_t spinney_mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 32;
}

// In the machine's own order of bytes: hashes do not leave it.
static inline uint64_t spinney_hash(const void *bytes, size_t length, uint64_t seed) {
  const uint8_t *at = bytes;
  uint64_t hash = spinney_mix(seed, length), word = 0;
  for (; length > 8; at += 8, length -= 8) {
    memcpy(&word, at, 8);
    hash = spinney_mix(hash, word);
  }
  if (length >= 4) {
    uint32_t first, last;
    memcpy(&first, at, 4);
    memcpy(&last, at + length - 4, 4);
    word = (uint64_t)first << 32 | last;
  } else if (length) {
    word = (uint64_t)at[0] << 16 | (uint64_t)at[length / 2] << 8 | at[length - 1];
  } else {
    word = 0;
  }
  return spinney_mix(spinney_mix(hash, word), UINT64_C(0xD6E8FEB86659FD93));
}

// ---- Table -----------------------------------------------------------------------------------------------------
//
// Open addressing; the caller compares what the values stand for:
//   for (uint32_t at = hash, v; (v = spinney_table_next(table, hash, &at)) != SPINNEY_NONE;) if (is_it(v)) ...

typedef struct spinney_slot {
  uint32_t hash;
  uint32_t value;  // SPINNEY_NONE: empty
} spinney_slot;

typedef struct spinney_table {
  spinney_slot *slots;
  uint32_t mask;  // one less than a power of two; slots is NULL: empty
  uint32_t used;
} spinney_table;

static inline uint32_t spinney_table_next(const spinney_table *table, uint32_t hash, uint32_t *at) {
  if (!table->slots) return SPINNEY_NONE;
  for (;;) {
    const spinney_slot *slot = &table->slots[(*at)++ & table->mask];
    if (slot->value == SPINNEY_NONE || slot->hash == hash) return slot->value;
  }
}

bool spinney_table_reserve(spinney_table *table, spinney_memory *memory);  // room for one more; false: no memory
void spinney_table_insert(spinney_table *table, uint32_t hash, uint32_t value);
void spinney_table_erase(spinney_table *table, uint32_t hash, uint32_t value);
void spinney_table_free(spinney_table *table, spinney_memory *memory);

// ---- Pages -----------------------------------------------------------------------------------------------------

enum { SPINNEY_PAGE_ITEMS = 1024 };

typedef struct spinney_pages {
  void **pages;
  uint32_t n_pages, capacity;
  size_t item_size;
} spinney_pages;

static inline void *spinney_page_item(const spinney_pages *pages, uint32_t index) {
  return (uint8_t *)pages->pages[index / SPINNEY_PAGE_ITEMS] + index % SPINNEY_PAGE_ITEMS * pages->item_size;
}

static inline bool spinney_pages_have(const spinney_pages *pages, uint32_t index) {
  return index / SPINNEY_PAGE_ITEMS < pages->n_pages && pages->pages[index / SPINNEY_PAGE_ITEMS];
}

// Makes the page of that item, all bytes 0xFF, if there is none. false: no memory.
bool spinney_pages_reserve(spinney_pages *pages, spinney_memory *memory, uint32_t index);
void spinney_pages_free(spinney_pages *pages, spinney_memory *memory);

#endif
