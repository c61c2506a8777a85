#include "utf8.h"

#include <string.h>

static int continues(const char *at) { return ((unsigned char)*at & 0xC0) == 0x80; }

static size_t two_bytes(const unsigned char *at, size_t left) {
  return at[0] >= 0xC2 && left >= 2 && continues((const char *)at + 1) ? 2 : 0;
}

static size_t three_bytes(const unsigned char *at, size_t left) {
  if (left < 3 || !continues((const char *)at + 1) || !continues((const char *)at + 2)) return 0;
  if (at[0] == 0xE0 && at[1] < 0xA0) return 0;   // too long
  if (at[0] == 0xED && at[1] >= 0xA0) return 0;  // a surrogate
  return 3;
}

static size_t four_bytes(const unsigned char *at, size_t left) {
  if (left < 4 || !continues((const char *)at + 1)) return 0;
  if (!continues((const char *)at + 2) || !continues((const char *)at + 3)) return 0;
  if (at[0] == 0xF0 && at[1] < 0x90) return 0;                     // too long
  if (at[0] > 0xF4 || (at[0] == 0xF4 && at[1] >= 0x90)) return 0;  // beyond U+10FFFF
  return 4;
}

size_t spinney_utf8_length(const char *at, const char *end) {
  const unsigned char *bytes = (const unsigned char *)at;
  size_t left = (size_t)(end - at);
  if (left == 0) return 0;
  if (bytes[0] < 0x80) return 1;
  if (bytes[0] < 0xE0) return two_bytes(bytes, left);
  return bytes[0] < 0xF0 ? three_bytes(bytes, left) : four_bytes(bytes, left);
}

uint32_t spinney_utf8_decode(const char *at, size_t length) {
  static const unsigned char first_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  uint32_t code = (unsigned char)at[0] & first_bits[length];
  for (size_t i = 1; i < length; i++) code = code << 6 | ((unsigned char)at[i] & 0x3F);
  return code;
}

size_t spinney_utf8_encode(uint32_t code, char *out) {
  static const unsigned char first_marks[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
  size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
  out[0] = (char)(first_marks[length] | code);
  return length;
}

size_t spinney_utf8_shorten(const char *text, size_t length, size_t most) {
  if (length <= most) return length;
  while (most > 0 && continues(text + most)) most--;
  return most;
}

static int eight_are_ascii(const char *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return (word & UINT64_C(0x8080808080808080)) == 0;
}

const char *spinney_utf8_check(const char *at, const char *end) {
  while (at < end) {
    if (end - at >= 8 && eight_are_ascii(at)) {
      at += 8;
      continue;
    }
    size_t length = spinney_utf8_length(at, end);
    if (length == 0) return at;
    at += length;
  }
  return at;
}
