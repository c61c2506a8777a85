#include "polygon.h"

#include <stdbool.h>
#include <stddef.h>

#include "bytes.h"

enum { BOUNDS_BYTES = 32, POSITION_BYTES = 16 };

static bool between(double value, double a, double b) {
  return a < b ? a <= value && value <= b : b <= value && value <= a;
}

static bool in_bounds(const uint8_t *bounds, double x, double y) {
  return spinney_load_f64(bounds) <= x && x <= spinney_load_f64(bounds + 16) && spinney_load_f64(bounds + 8) <= y &&
         y <= spinney_load_f64(bounds + 24);
}

// Even-odd over the edges of one ring; true as soon as the point is on one of them.
static bool cross_ring(const uint8_t *at, uint32_t positions, double x, double y, bool *inside) {
  for (uint32_t i = 1; i < positions; i++, at += POSITION_BYTES) {
    double x1 = spinney_load_f64(at), y1 = spinney_load_f64(at + 8);
    double x2 = spinney_load_f64(at + 16), y2 = spinney_load_f64(at + 24);
    double side = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1);
    if (side == 0.0 && between(x, x1, x2) && between(y, y1, y2)) return true;
    if ((y1 > y) != (y2 > y) && (side > 0.0) == (y2 > y1)) *inside = !*inside;
  }
  return false;
}

// Leaves *at behind the polygon.
static spinney_place polygon_place(const uint8_t **at, double x, double y) {
  bool possible = in_bounds(*at, x, y), inside = false, border = false;
  uint16_t rings = spinney_load_u16(*at + BOUNDS_BYTES);
  *at += BOUNDS_BYTES + 2;
  for (uint16_t i = 0; i < rings; i++) {
    uint32_t positions = spinney_load_u32(*at);
    if (possible && !border) border = cross_ring(*at + 4, positions, x, y, &inside);
    *at += 4 + (size_t)positions * POSITION_BYTES;
  }
  return border ? SPINNEY_BORDER : inside ? SPINNEY_INSIDE : SPINNEY_OUTSIDE;
}

spinney_place spinney_polygons_place(const uint8_t **polygons, double x, double y) {
  spinney_place best = SPINNEY_OUTSIDE;
  uint16_t count = spinney_load_u16(*polygons);
  *polygons += 2;
  for (uint16_t i = 0; i < count; i++) {
    spinney_place place = polygon_place(polygons, x, y);
    if (place > best) best = place;
  }
  return best;
}
