// program.h - the instructions of filter programs; spinney.h, section 3, says what they do.

#ifndef SPINNEY_PROGRAM_H
#define SPINNEY_PROGRAM_H

typedef enum spinney_opcode {
  OP_NUMBER = 0x01,
  OP_STRING = 0x02,
  OP_BOOLEAN = 0x03,
  OP_NULL = 0x04,
  OP_ATTRIBUTE = 0x05,
  OP_ADD = 0x10,
  OP_SUBTRACT = 0x11,
  OP_MULTIPLY = 0x12,
  OP_DIVIDE = 0x13,
  OP_REMAINDER = 0x14,
  OP_DIVIDE_WHOLE = 0x15,
  OP_POWER = 0x16,
  OP_ABS = 0x17,
  OP_DISTANCE = 0x18,
  OP_CASEFOLD = 0x19,
  OP_EQUAL = 0x20,
  OP_NOT_EQUAL = 0x21,
  OP_LESS = 0x22,
  OP_GREATER = 0x23,
  OP_AT_MOST = 0x24,
  OP_AT_LEAST = 0x25,
  OP_IS_NULL = 0x26,
  OP_LIKE = 0x27,
  OP_IN = 0x28,
  OP_AND = 0x30,
  OP_OR = 0x31,
  OP_NOT = 0x32,
  OP_UNLESS_FALSE = 0x33,
  OP_UNLESS_TRUE = 0x34,
  OP_POLYGON = 0x40,
  OP_END = 0x41  // one more than the last
} spinney_opcode;

#endif
