// bytes.h - little-endian numbers at any address, whatever the machine's own order.

#ifndef SPINNEY_BYTES_H
#define SPINNEY_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t spinney_load_u16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

static inline uint32_t spinney_load_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline double spinney_load_f64(const uint8_t *at) {
  uint64_t bits = spinney_load_u32(at) | (uint64_t)spinney_load_u32(at + 4) << 32;
  double number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

#endif
