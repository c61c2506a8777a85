// place.h - which bucket is the best for a box, and items in and out of it.

#ifndef SPINNEY_PLACE_H
#define SPINNEY_PLACE_H

#include "matcher.h"

// The bucket whose predicate the box has and which is the best to look in; made if need be. NULL: no memory.
spinney_bucket *spinney_place_choose(spinney_matcher *m, spinney_box box);

// Whether the bucket and the coordinates say all that the box says, so that what is found by them need not be checked.
bool spinney_place_is_whole(const spinney_bucket *bucket, spinney_box box);

// The box belongs into the bucket; item is an id only if that is whole. false: no memory, and nothing changed.
bool spinney_place_insert(spinney_matcher *m, spinney_bucket *bucket, spinney_box box, uint32_t item);
void spinney_place_erase(spinney_matcher *m, spinney_bucket *bucket, spinney_box box, uint32_t item);
// The box of an id becomes a part's.
void spinney_place_replace(spinney_bucket *bucket, spinney_box box, uint32_t old_item, uint32_t new_item);

#endif
