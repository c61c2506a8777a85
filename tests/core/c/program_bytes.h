// program_bytes.h - writes filter programs by hand, for tests.

#ifndef PROGRAM_BYTES_H
#define PROGRAM_BYTES_H

#include <stdint.h>
#include <string.h>

typedef struct program_bytes {
  uint8_t bytes[8192];
  size_t length;
} program_bytes;

static inline void put(program_bytes *program, const void *bytes, size_t length) {
  memcpy(program->bytes + program->length, bytes, length);
  program->length += length;
}

static inline void put_u8(program_bytes *program, uint8_t value) { put(program, &value, 1); }

static inline void put_u16(program_bytes *program, uint16_t value) {
  put_u8(program, (uint8_t)value);
  put_u8(program, (uint8_t)(value >> 8));
}

static inline void put_u32(program_bytes *program, uint32_t value) {
  put_u16(program, (uint16_t)value);
  put_u16(program, (uint16_t)(value >> 16));
}

static inline void put_f64(program_bytes *program, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_u32(program, (uint32_t)bits);
  put_u32(program, (uint32_t)(bits >> 32));
}

static inline void put_text(program_bytes *program, const char *text) {
  put_u32(program, (uint32_t)strlen(text));
  put(program, text, strlen(text));
}

static inline void put_number(program_bytes *program, double value) {
  put_u8(program, 0x01);
  put_f64(program, value);
}

static inline void put_string(program_bytes *program, const char *text) {
  put_u8(program, 0x02);
  put_text(program, text);
}

static inline void put_boolean(program_bytes *program, uint8_t value) {
  put_u8(program, 0x03);
  put_u8(program, value);
}

static inline void put_attribute(program_bytes *program, uint16_t attribute) {
  put_u8(program, 0x05);
  put_u16(program, attribute);
}

static inline void put_like(program_bytes *program, const char *pattern) {
  put_u8(program, 0x27);
  put_text(program, pattern);
}

#endif
