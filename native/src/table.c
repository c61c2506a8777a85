// table.c - a table from hash to index, and arrays in pages.

#include "table.h"

enum { FIRST_SLOTS = 8 };

// ---- Table -----------------------------------------------------------------------------------------------------

static uint32_t slots_of(const spinney_table *table) { return table->slots ? table->mask + 1 : 0; }

void spinney_table_insert(spinney_table *table, uint32_t hash, uint32_t value) {
  uint32_t at = hash & table->mask;
  while (table->slots[at].value != SPINNEY_NONE) at = (at + 1) & table->mask;
  table->slots[at] = (spinney_slot){hash, value};
  table->used++;
}

static bool rehash(spinney_table *table, spinney_memory *memory, uint32_t n_slots) {
  spinney_table fresh = {spinney_resize(memory, NULL, 0, n_slots * sizeof(spinney_slot)), n_slots - 1, 0};
  if (!fresh.slots) return false;
  memset(fresh.slots, 0xFF, n_slots * sizeof(spinney_slot));
  for (uint32_t i = 0; i < slots_of(table); i++)
    if (table->slots[i].value != SPINNEY_NONE)
      spinney_table_insert(&fresh, table->slots[i].hash, table->slots[i].value);
  spinney_table_free(table, memory);
  *table = fresh;
  return true;
}

bool spinney_table_reserve(spinney_table *table, spinney_memory *memory) {
  uint32_t n_slots = slots_of(table);
  if (table->used < n_slots / 4 * 3) return true;
  return n_slots < UINT32_C(1) << 31 && rehash(table, memory, n_slots ? n_slots * 2 : FIRST_SLOTS);
}

// The slots that follow move up, so that no search ends early.
void spinney_table_erase(spinney_table *table, uint32_t hash, uint32_t value) {
  uint32_t at = hash & table->mask;
  while (table->slots[at].value != value) at = (at + 1) & table->mask;
  for (uint32_t next = (at + 1) & table->mask; table->slots[next].value != SPINNEY_NONE;
       next = (next + 1) & table->mask) {
    uint32_t home = table->slots[next].hash & table->mask;
    if (((next - home) & table->mask) < ((next - at) & table->mask)) continue;
    table->slots[at] = table->slots[next];
    at = next;
  }
  table->slots[at] = (spinney_slot){0, SPINNEY_NONE};
  table->used--;
}

void spinney_table_free(spinney_table *table, spinney_memory *memory) {
  spinney_resize(memory, table->slots, slots_of(table) * sizeof(spinney_slot), 0);
  *table = (spinney_table){0};
}

// ---- Pages -----------------------------------------------------------------------------------------------------

bool spinney_pages_reserve(spinney_pages *pages, spinney_memory *memory, uint32_t index) {
  uint32_t page = index / SPINNEY_PAGE_ITEMS;
  if (!spinney_grow(memory, &pages->pages, &pages->capacity, sizeof *pages->pages, (size_t)page + 1)) return false;
  for (; pages->n_pages <= page; pages->n_pages++) pages->pages[pages->n_pages] = NULL;
  if (pages->pages[page]) return true;
  size_t bytes = pages->item_size * SPINNEY_PAGE_ITEMS;
  pages->pages[page] = spinney_resize(memory, NULL, 0, bytes);
  if (pages->pages[page]) memset(pages->pages[page], 0xFF, bytes);
  return pages->pages[page];
}

void spinney_pages_free(spinney_pages *pages, spinney_memory *memory) {
  for (uint32_t i = 0; i < pages->n_pages; i++)
    if (pages->pages[i]) spinney_resize(memory, pages->pages[i], pages->item_size * SPINNEY_PAGE_ITEMS, 0);
  spinney_resize(memory, pages->pages, pages->capacity * sizeof *pages->pages, 0);
  pages->pages = NULL;
  pages->n_pages = pages->capacity = 0;
}
