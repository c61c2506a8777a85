// entry.h - distinct filters, the ids that hold them, and where they are kept.

#ifndef SPINNEY_ENTRY_H
#define SPINNEY_ENTRY_H

#include "matcher.h"

// The entry of an equal filter, or SPINNEY_NONE.
uint32_t spinney_entry_find(const spinney_matcher *m, const spinney_filter *filter, uint32_t schema);

// Each false: no memory, and nothing changed. The page of the id in entry_of is there.
bool spinney_entry_make(spinney_matcher *m, const spinney_filter *filter, uint32_t schema, uint32_t id);
bool spinney_entry_share(spinney_matcher *m, uint32_t entry, uint32_t id);

// The id holds an entry, which goes with its last id.
void spinney_entry_leave(spinney_matcher *m, uint32_t id);

void spinney_entries_free(spinney_matcher *m);

#endif
