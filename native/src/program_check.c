// Checks a program once, so that running it needs no checks: every instruction whole, every jump to the beginning of
// one, and at every place one stack depth, whichever way it is reached.

#include <math.h>

#include "bytes.h"
#include "internal.h"
#include "program.h"

// What follows an opcode.
typedef enum operands { NONE, NUMBER, TEXT, TRUTH, ATTRIBUTE, CONSTANTS, JUMP, POLYGONS } operands;

typedef struct instruction {
  uint8_t known, pops, pushes;
  operands operands;
} instruction;

static const instruction instructions[OP_END] = {
    [OP_NUMBER] = {1, 0, 1, NUMBER},       [OP_STRING] = {1, 0, 1, TEXT},
    [OP_BOOLEAN] = {1, 0, 1, TRUTH},       [OP_NULL] = {1, 0, 1, NONE},
    [OP_ATTRIBUTE] = {1, 0, 1, ATTRIBUTE}, [OP_ADD] = {1, 2, 1, NONE},
    [OP_SUBTRACT] = {1, 2, 1, NONE},       [OP_MULTIPLY] = {1, 2, 1, NONE},
    [OP_DIVIDE] = {1, 2, 1, NONE},         [OP_REMAINDER] = {1, 2, 1, NONE},
    [OP_DIVIDE_WHOLE] = {1, 2, 1, NONE},   [OP_POWER] = {1, 2, 1, NONE},
    [OP_ABS] = {1, 1, 1, NONE},            [OP_DISTANCE] = {1, 4, 1, NONE},
    [OP_CASEFOLD] = {1, 1, 1, NONE},       [OP_EQUAL] = {1, 2, 1, NONE},
    [OP_NOT_EQUAL] = {1, 2, 1, NONE},      [OP_LESS] = {1, 2, 1, NONE},
    [OP_GREATER] = {1, 2, 1, NONE},        [OP_AT_MOST] = {1, 2, 1, NONE},
    [OP_AT_LEAST] = {1, 2, 1, NONE},       [OP_IS_NULL] = {1, 1, 1, NONE},
    [OP_LIKE] = {1, 1, 1, TEXT},           [OP_IN] = {1, 1, 1, CONSTANTS},
    [OP_AND] = {1, 2, 1, NONE},            [OP_OR] = {1, 2, 1, NONE},
    [OP_NOT] = {1, 1, 1, NONE},            [OP_UNLESS_FALSE] = {1, 1, 1, JUMP},
    [OP_UNLESS_TRUE] = {1, 1, 1, JUMP},    [OP_POLYGON] = {1, 2, 1, POLYGONS},
};

// Where a jump lands and how deep the stack is then.
typedef struct landing {
  size_t offset, depth;
} landing;

// Landings still ahead; jumps nest, so the next to come is the last.
typedef struct checker {
  const uint8_t *code;
  size_t length, at, depth, base, n_landings;
  uint32_t n_attributes;
  spinney_error *error;
  landing landings[SPINNEY_MAX_STACK];
} checker;

static bool fail(checker *c, const char *what) {
  spinney_fail(c->error, SPINNEY_BAD_FILTER, c->base + c->at, "program: %s", what);
  return false;
}

// ---- operands

static bool has(checker *c, uint64_t size) {
  return size <= c->length - c->at || fail(c, "the bytes end within an instruction");
}

static bool skip(checker *c, uint64_t size) {
  if (!has(c, size)) return false;
  c->at += (size_t)size;
  return true;
}

static bool take_number(checker *c) {
  if (!has(c, 8)) return false;
  if (!isfinite(spinney_load_f64(c->code + c->at))) return fail(c, "a number is not finite");
  return skip(c, 8);
}

static bool take_numbers(checker *c, uint64_t count) {
  if (!has(c, count * 8)) return false;
  while (count-- > 0) {
    if (!take_number(c)) return false;
  }
  return true;
}

static bool take_text(checker *c) {
  if (!has(c, 4)) return false;
  return skip(c, 4 + (uint64_t)spinney_load_u32(c->code + c->at));
}

static bool take_truth(checker *c) {
  if (!has(c, 1)) return false;
  return c->code[c->at] <= 1 ? skip(c, 1) : fail(c, "a boolean is neither 0 nor 1");
}

static bool take_attribute(checker *c) {
  if (!has(c, 2)) return false;
  return spinney_load_u16(c->code + c->at) < c->n_attributes ? skip(c, 2) : fail(c, "no attribute has this index");
}

static bool take_constant(checker *c) {
  if (!has(c, 1)) return false;
  switch (c->code[c->at]) {
    case OP_NUMBER: return skip(c, 1) && take_number(c);
    case OP_STRING: return skip(c, 1) && take_text(c);
    case OP_BOOLEAN: return skip(c, 1) && take_truth(c);
    default: return fail(c, "expected a constant");
  }
}

static bool take_constants(checker *c) {
  if (!has(c, 2)) return false;
  uint16_t count = spinney_load_u16(c->code + c->at);
  c->at += 2;
  while (count-- > 0) {
    if (!take_constant(c)) return false;
  }
  return true;
}

static bool take_polygon(checker *c) {
  if (!take_numbers(c, 4) || !has(c, 2)) return false;
  uint16_t rings = spinney_load_u16(c->code + c->at);
  c->at += 2;
  while (rings-- > 0) {
    if (!has(c, 4)) return false;
    uint64_t positions = spinney_load_u32(c->code + c->at);
    c->at += 4;
    if (!take_numbers(c, 2 * positions)) return false;
  }
  return true;
}

static bool take_polygons(checker *c) {
  if (!take_truth(c) || !has(c, 2)) return false;
  uint16_t count = spinney_load_u16(c->code + c->at);
  c->at += 2;
  while (count-- > 0) {
    if (!take_polygon(c)) return false;
  }
  return true;
}

// ---- jumps

static bool take_jump(checker *c) {
  if (!has(c, 4)) return false;
  uint64_t distance = spinney_load_u32(c->code + c->at);
  if (distance > c->length - c->at - 4) return fail(c, "a jump leads out of the program");
  landing land = {c->at + 4 + (size_t)distance, c->depth};
  const landing *next = c->n_landings ? &c->landings[c->n_landings - 1] : NULL;
  if (next && land.offset > next->offset) return fail(c, "a jump crosses the end of another");
  if (next && land.offset == next->offset) {
    return land.depth == next->depth ? skip(c, 4) : fail(c, "two jumps land with different stacks");
  }
  if (c->n_landings == SPINNEY_MAX_STACK) return fail(c, "too many jumps are nested");
  c->landings[c->n_landings++] = land;
  return skip(c, 4);
}

// To be called where an instruction begins or the program ends.
static bool land(checker *c) {
  if (c->n_landings == 0) return true;
  const landing *next = &c->landings[c->n_landings - 1];
  if (next->offset > c->at) return true;
  if (next->offset < c->at) return fail(c, "a jump led into the instruction before");
  if (next->depth != c->depth) return fail(c, "a jump lands with another stack");
  c->n_landings--;
  return true;
}

// ---- the whole

static bool take_operands(checker *c, operands operands) {
  switch (operands) {
    case NONE: return true;
    case NUMBER: return take_number(c);
    case TEXT: return take_text(c);
    case TRUTH: return take_truth(c);
    case ATTRIBUTE: return take_attribute(c);
    case CONSTANTS: return take_constants(c);
    case JUMP: return take_jump(c);
    case POLYGONS: return take_polygons(c);
  }
  return fail(c, "unknown operands");
}

static bool take_instruction(checker *c) {
  uint8_t opcode = c->code[c->at];
  if (opcode >= OP_END || !instructions[opcode].known) return fail(c, "unknown instruction");
  const instruction *instruction = &instructions[opcode];
  if (c->depth < instruction->pops) return fail(c, "the stack has too few values for this instruction");
  c->depth = c->depth - instruction->pops + instruction->pushes;
  if (c->depth > SPINNEY_MAX_STACK) return fail(c, "the stack grows too high");
  c->at++;
  return take_operands(c, instruction->operands);
}

static bool check(checker *c) {
  while (c->at < c->length) {
    if (!land(c) || !take_instruction(c)) return false;
  }
  return land(c) && (c->depth == 1 || fail(c, "expected exactly one value at the end"));
}

spinney_status spinney_program_check(const uint8_t *code, size_t length, uint32_t n_attributes, size_t base_position,
                                     spinney_error *error) {
  checker c = {.code = code, .length = length, .base = base_position, .n_attributes = n_attributes, .error = error};
  return check(&c) ? SPINNEY_OK : SPINNEY_BAD_FILTER;
}
