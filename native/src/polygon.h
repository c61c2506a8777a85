// polygon.h - where a point is, seen from polygons in the byte form of POLYGON (spinney.h, section 3).

#ifndef SPINNEY_POLYGON_H
#define SPINNEY_POLYGON_H

#include <stdint.h>

typedef enum spinney_place { SPINNEY_OUTSIDE = 0, SPINNEY_BORDER = 1, SPINNEY_INSIDE = 2 } spinney_place;

// As the best of the polygons says; the same steps as geometry.py. *polygons is their number (u16) and what follows,
// which has been checked; it is left behind them.
spinney_place spinney_polygons_place(const uint8_t **polygons, double x, double y);

#endif
