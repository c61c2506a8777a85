// Runs a program that program_check.c has passed: nothing is checked here but the types of values.

#include "program.h"

#include <math.h>

#include "bytes.h"
#include "casefold.h"
#include "distance.h"
#include "internal.h"
#include "like.h"
#include "polygon.h"

enum { EXACT_EXPONENT = 1024 };  // whole exponents up to this are repeated multiplication, in every tier

// A value on the stack. Folded texts lie in the scratch, which can move: they are known by their offset in it.
typedef struct operand {
  uint32_t type;
  bool folded;
  union {
    double number;
    const char *text;
    size_t offset;
  } as;
  size_t length;  // of a string
} operand;

typedef struct machine {
  const uint8_t *at;
  operand *top;  // the first free place
  const uint32_t *attribute_map;
  const spinney_event *event;
  spinney_scratch *scratch;
  size_t used;  // of the scratch: folded texts in the order of the stack
  operand stack[SPINNEY_MAX_STACK];
} machine;

// ---- the stack

static operand *pop(machine *m) {
  operand *popped = --m->top;
  if (popped->folded) m->used = popped->as.offset;
  return popped;
}

static void push_null(machine *m) {
  m->top->type = SPINNEY_NULL;
  m->top++->folded = false;
}

static void push_number(machine *m, double number) {
  *m->top++ = (operand){.type = SPINNEY_NUMBER, .as.number = number};
}

static void push_finite(machine *m, double number) {
  if (isfinite(number)) push_number(m, number);
  else push_null(m);
}

static void push_string(machine *m, const char *text, size_t length) {
  *m->top++ = (operand){.type = SPINNEY_STRING, .as.text = text, .length = length};
}

static void push_boolean(machine *m, bool truth) {
  *m->top++ = (operand){.type = SPINNEY_BOOLEAN, .as.number = truth};
}

static void push_verdict(machine *m, spinney_verdict verdict) {
  if (verdict == SPINNEY_VERDICT_UNKNOWN) push_null(m);
  else push_boolean(m, verdict == SPINNEY_VERDICT_TRUE);
}

static spinney_verdict verdict_of(const operand *value) {
  if (value->type != SPINNEY_BOOLEAN) return SPINNEY_VERDICT_UNKNOWN;
  return value->as.number != 0.0 ? SPINNEY_VERDICT_TRUE : SPINNEY_VERDICT_FALSE;
}

static const char *text_of(const machine *m, const operand *value) {
  return value->folded ? (const char *)m->scratch->bytes + value->as.offset : value->as.text;
}

static void push_attribute(machine *m) {
  const spinney_value *value = &m->event->slots[m->attribute_map[spinney_load_u16(m->at)]];
  m->at += 2;
  if (value->type == SPINNEY_STRING) push_string(m, value->text, value->length);
  else *m->top++ = (operand){.type = value->type, .as.number = value->number};
}

// ---- numbers

// The reference does the same multiplications in the same order.
static double power_of_whole(double base, double exponent) {
  double result = 1.0, square = base;
  for (unsigned left = (unsigned)fabs(exponent); left; left >>= 1) {
    if (left & 1) result *= square;
    if (left > 1) square *= square;
  }
  return exponent < 0.0 ? 1.0 / result : result;
}

static double power(double base, double exponent) {
  if (exponent == 0.5) return sqrt(base);
  if (fabs(exponent) <= EXACT_EXPONENT && trunc(exponent) == exponent) return power_of_whole(base, exponent);
  return pow(base, exponent);
}

static double arithmetic(uint8_t opcode, double a, double b) {
  switch (opcode) {
    case OP_ADD: return a + b;
    case OP_SUBTRACT: return a - b;
    case OP_MULTIPLY: return a * b;
    case OP_DIVIDE: return a / b;
    case OP_REMAINDER: return fmod(a, b);
    case OP_DIVIDE_WHOLE: return trunc(a / b) + 0.0;  // no negative zero, which whole numbers do not have
    default: return power(a, b);
  }
}

static void run_arithmetic(machine *m, uint8_t opcode) {
  const operand *b = pop(m), *a = pop(m);
  bool numbers = a->type == SPINNEY_NUMBER && b->type == SPINNEY_NUMBER;
  if (numbers) push_finite(m, arithmetic(opcode, a->as.number, b->as.number));
  else push_null(m);
}

static void run_abs(machine *m) {
  const operand *value = pop(m);
  if (value->type == SPINNEY_NUMBER) push_number(m, fabs(value->as.number));
  else push_null(m);
}

static void run_distance(machine *m) {
  const operand *long2 = pop(m), *lat2 = pop(m), *long1 = pop(m), *lat1 = pop(m);
  bool numbers = lat1->type == SPINNEY_NUMBER && long1->type == SPINNEY_NUMBER && lat2->type == SPINNEY_NUMBER &&
                 long2->type == SPINNEY_NUMBER;
  if (!numbers) push_null(m);
  else push_finite(m, spinney_distance(lat1->as.number, long1->as.number, lat2->as.number, long2->as.number));
}

static void run_polygon(machine *m) {
  const operand *y = pop(m), *x = pop(m);
  bool numbers = x->type == SPINNEY_NUMBER && y->type == SPINNEY_NUMBER;
  spinney_place wanted = *m->at++ ? SPINNEY_INSIDE : SPINNEY_BORDER;
  spinney_place place = spinney_polygons_place(&m->at, numbers ? x->as.number : 0.0, numbers ? y->as.number : 0.0);
  if (numbers) push_boolean(m, place >= wanted);
  else push_null(m);
}

// ---- strings

// False: no memory.
static bool run_casefold(machine *m) {
  const operand *value = pop(m);
  if (value->type != SPINNEY_STRING) {
    push_null(m);
    return true;
  }
  size_t length = value->length, start = m->used;
  size_t out = value->folded ? start + length : start;  // not over the text that is being read
  if (length >= (SIZE_MAX - out) / SPINNEY_CASEFOLD_GROWTH) return false;
  if (!spinney_scratch_reserve(m->scratch, out + SPINNEY_CASEFOLD_GROWTH * length + 1)) return false;  // never of 0
  char *folded = (char *)m->scratch->bytes;
  length = spinney_casefold(text_of(m, value), length, folded + out);
  if (out != start) memmove(folded + start, folded + out, length);
  m->used = start + length;
  *m->top++ = (operand){.type = SPINNEY_STRING, .folded = true, .as.offset = start, .length = length};
  return true;
}

static void run_like(machine *m) {
  const operand *value = pop(m);
  uint32_t length = spinney_load_u32(m->at);
  const char *pattern = (const char *)m->at + 4;
  m->at += 4 + (size_t)length;
  if (value->type != SPINNEY_STRING) push_null(m);
  else push_boolean(m, spinney_like(text_of(m, value), value->length, pattern, length));
}

// ---- comparisons

// Bytes of UTF-8 are in the order of code points.
static int compare_texts(const char *a, size_t a_length, const char *b, size_t b_length) {
  size_t shorter = a_length < b_length ? a_length : b_length;
  int order = shorter ? memcmp(a, b, shorter) : 0;
  return order ? order : (a_length > b_length) - (a_length < b_length);
}

// Of two values of one type: negative, 0 or positive.
static int compare(const machine *m, const operand *a, const operand *b) {
  if (a->type == SPINNEY_STRING) return compare_texts(text_of(m, a), a->length, text_of(m, b), b->length);
  return (a->as.number > b->as.number) - (a->as.number < b->as.number);
}

static bool holds(uint8_t opcode, int order) {
  switch (opcode) {
    case OP_EQUAL: return order == 0;
    case OP_NOT_EQUAL: return order != 0;
    case OP_LESS: return order < 0;
    case OP_GREATER: return order > 0;
    case OP_AT_MOST: return order <= 0;
    default: return order >= 0;
  }
}

static void run_comparison(machine *m, uint8_t opcode) {
  const operand *b = pop(m), *a = pop(m);
  if (a->type == SPINNEY_NULL || a->type != b->type) push_null(m);
  else push_boolean(m, holds(opcode, compare(m, a, b)));
}

static operand take_constant(machine *m) {
  const uint8_t *at = m->at + 1;
  switch (*m->at) {
    case OP_NUMBER:
      m->at += 9;
      return (operand){.type = SPINNEY_NUMBER, .as.number = spinney_load_f64(at)};
    case OP_STRING: {
      uint32_t length = spinney_load_u32(at);
      m->at += 5 + (size_t)length;
      return (operand){.type = SPINNEY_STRING, .as.text = (const char *)at + 4, .length = length};
    }
    default:
      m->at += 2;
      return (operand){.type = SPINNEY_BOOLEAN, .as.number = *at};
  }
}

static void run_in(machine *m) {
  const operand *value = pop(m);
  spinney_verdict verdict = SPINNEY_VERDICT_FALSE;
  uint16_t count = spinney_load_u16(m->at);
  m->at += 2;
  while (count-- > 0) {
    operand constant = take_constant(m);
    if (verdict == SPINNEY_VERDICT_TRUE) continue;
    if (value->type != constant.type) verdict = SPINNEY_VERDICT_UNKNOWN;
    else if (compare(m, value, &constant) == 0) verdict = SPINNEY_VERDICT_TRUE;
  }
  push_verdict(m, verdict);
}

// ---- logic

// AND, and OR with everything turned round: `strong` decides alone, else unknown does.
static void run_logic(machine *m, spinney_verdict strong) {
  spinney_verdict b = verdict_of(pop(m)), a = verdict_of(pop(m));
  if (a == strong || b == strong) push_verdict(m, strong);
  else push_verdict(m, a == SPINNEY_VERDICT_UNKNOWN ? a : b);
}

static void run_not(machine *m) {
  spinney_verdict verdict = verdict_of(pop(m));
  push_verdict(m, verdict == SPINNEY_VERDICT_UNKNOWN ? verdict : verdict == SPINNEY_VERDICT_FALSE);
}

static void run_jump(machine *m, spinney_verdict unless) {
  uint32_t distance = spinney_load_u32(m->at);
  m->at += 4;
  if (verdict_of(m->top - 1) == unless) m->at += distance;
}

// ---- the loop

static void push_constant(machine *m) {
  m->at--;
  *m->top = take_constant(m);
  m->top++;
}

// One instruction; false: no memory.
static bool run_one(machine *m) {
  uint8_t opcode = *m->at++;
  switch (opcode) {
    case OP_NUMBER:
    case OP_STRING:
    case OP_BOOLEAN: push_constant(m); return true;
    case OP_NULL: push_null(m); return true;
    case OP_ATTRIBUTE: push_attribute(m); return true;
    case OP_ABS: run_abs(m); return true;
    case OP_DISTANCE: run_distance(m); return true;
    case OP_CASEFOLD: return run_casefold(m);
    case OP_EQUAL:
    case OP_NOT_EQUAL:
    case OP_LESS:
    case OP_GREATER:
    case OP_AT_MOST:
    case OP_AT_LEAST: run_comparison(m, opcode); return true;
    case OP_IS_NULL: push_boolean(m, pop(m)->type == SPINNEY_NULL); return true;
    case OP_LIKE: run_like(m); return true;
    case OP_IN: run_in(m); return true;
    case OP_AND: run_logic(m, SPINNEY_VERDICT_FALSE); return true;
    case OP_OR: run_logic(m, SPINNEY_VERDICT_TRUE); return true;
    case OP_NOT: run_not(m); return true;
    case OP_UNLESS_FALSE: run_jump(m, SPINNEY_VERDICT_FALSE); return true;
    case OP_UNLESS_TRUE: run_jump(m, SPINNEY_VERDICT_TRUE); return true;
    case OP_POLYGON: run_polygon(m); return true;
    default: run_arithmetic(m, opcode); return true;
  }
}

spinney_verdict spinney_program_run(const uint8_t *code, size_t length, const uint32_t *attribute_map,
                                    const spinney_event *event, spinney_scratch *scratch) {
  machine m;  // the stack is not initialised: nothing is popped that was not pushed
  m.at = code;
  m.top = m.stack;
  m.attribute_map = attribute_map;
  m.event = event;
  m.scratch = scratch;
  m.used = 0;
  for (const uint8_t *end = code + length; m.at < end;) {
    if (!run_one(&m)) return SPINNEY_VERDICT_NO_MEMORY;
  }
  return verdict_of(m.stack);
}
