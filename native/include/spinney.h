// spinney.h - the C core of Spinney: exact content-based matching of sensor readings.
//
// This header is the manual. Sections:
//   1. Conventions       handles, ownership, errors, memory, threads
//   2. Values            what an event is made of
//   3. Filters           the byte form of a filter: boxes and a program
//   4. Matcher           add, remove, measure
//   5. Reader            match arrays of values, JSON, Arrow
//   6. Workers           which instruction set is used
//   7. Columns           rows of JSON as Arrow columns
//
// ---- 1. Conventions --------------------------------------------------------------------------------------------
//
// Handles (spinney_matcher, spinney_reader, spinney_columns) are opaque; whoever makes one frees it. Pointers that are
// passed in are only read during the call. Answers live in the reader, or the columns, and hold until its next call.
// Functions that can fail return a spinney_status and fill *error (which may be NULL). A failed call changes nothing.
// There are no globals, no locale, no recursion on input, and every size that comes from input is checked.
// Threads: any number may match at once, each with a reader of its own, while others add and remove; columns have one.
// All memory comes from the allocator given to spinney_matcher_new, which several threads may call at once, or to
// spinney_columns_new; a matcher is freed after its readers.

#ifndef SPINNEY_H
#define SPINNEY_H

#include <stddef.h>
#include <stdint.h>

typedef enum spinney_status {
  SPINNEY_OK = 0,
  SPINNEY_NO_MEMORY = 1,   // the allocator said no
  SPINNEY_BAD_FILTER = 2,  // the bytes are not a filter; position counts bytes
  SPINNEY_BAD_EVENT = 3,   // not a flat JSON object, or a value that is refused; position counts bytes
  SPINNEY_BAD_BATCH = 4,   // an Arrow type or value that is refused; position is the column
  SPINNEY_BAD_ID = 5,      // added twice, not there, or too large
  SPINNEY_FULL = 6         // more than columns hold: give what there is, forget it, and take this again
} spinney_status;

typedef struct spinney_error {
  spinney_status status;
  size_t position;    // where in the input, as the status says
  char message[160];  // one line of English, always terminated
} spinney_error;

// resize(context, NULL, n) allocates, resize(context, p, 0) frees and returns NULL. Memory is aligned as by malloc.
typedef struct spinney_allocator {
  void *(*resize)(void *context, void *memory, size_t size);
  void *context;
} spinney_allocator;

// ---- 2. Values -------------------------------------------------------------------------------------------------

typedef enum spinney_type {
  SPINNEY_NULL = 0,
  SPINNEY_NUMBER = 1,
  SPINNEY_STRING = 2,
  SPINNEY_BOOLEAN = 3
} spinney_type;

// One attribute of an event. Strings are UTF-8 and need no terminator. Numbers are finite.
typedef struct spinney_value {
  uint32_t attribute;  // from spinney_attribute
  uint32_t type;       // a spinney_type
  double number;       // SPINNEY_NUMBER; SPINNEY_BOOLEAN: 0 or 1
  const char *text;    // SPINNEY_STRING
  size_t length;       // of text
} spinney_value;

// ---- 3. Filters ------------------------------------------------------------------------------------------------
//
// A filter is true of an event if, for at least one of its boxes, every predicate of the box holds, and its program
// (if it has one) leaves true. Boxes are for the index, the program for what boxes cannot say.
// Little-endian, no padding:
//
//   u8 'S', u8 'F', u8 version = 1, u8 has_program (0 or 1)
//   u16 attributes;  each: u16 length, bytes (UTF-8, distinct names)
//   u16 boxes;       each: u8 predicates; each predicate: u8 kind, u16 attribute (index into the list above), then
//        1 RANGE    f64 low, f64 high   a number within the closed range; infinities are allowed, NaN is not
//        2 EQUALS   u32 length, bytes   the string, byte for byte
//        3 PREFIX   u32 length, bytes   a string that begins with these bytes
//        4 BOOLEAN  u8 0 or 1           the boolean
//        5 PRESENT                      any value but null
//      at most one predicate of each kind on an attribute in one box; a box without predicates always holds
//   u32 program length, bytes           only if has_program
//
// The program is a stack machine's, over null, numbers, strings and booleans; null is also the truth value unknown.
// It has forward jumps only, so it ends; they nest: none lands beyond where one around it does. Numbers are finite. At
// the end exactly one value is on the stack. Instructions:
//
//   0x01 NUMBER f64           push            0x02 STRING u32 length, bytes   push
//   0x03 BOOLEAN u8           push            0x04 NULL                       push
//   0x05 ATTRIBUTE u16        push the attribute's value or null
//   0x10 + 0x11 - 0x12 * 0x13 / 0x14 % (fmod) 0x15 div (quotient truncated) 0x16 ^
//                             pop b, a; push; null unless both are numbers and the result is finite
//   0x17 ABS                  0x18 DISTANCE   pop long2, lat2, long1, lat1; metres
//   0x19 CASEFOLD             pop a string, push it folded; null for anything else
//   0x20 = 0x21 <> 0x22 < 0x23 > 0x24 <= 0x25 >=
//                             pop b, a; push a boolean; null if either is null or their types differ;
//                             strings by code point, false < true
//   0x26 ISNULL               pop; push a boolean
//   0x27 LIKE u32 length, pattern   pop a string; % any run, _ one code point, \ makes %, _ and \ literal
//   0x28 IN u16 count, each a constant as by 0x01, 0x02 or 0x03
//                             pop; as = with each, joined by OR
//   0x30 AND  0x31 OR         pop b, a; push, three-valued      0x32 NOT
//   0x33 UNLESS_FALSE u32 n   if the top is false jump n bytes ahead, leaving it      (a AND ...)
//   0x34 UNLESS_TRUE u32 n    if the top is true jump n bytes ahead, leaving it       (a OR ...)
//   0x40 POLYGON u8 mode, u16 polygons; each: f64 west, south, east, north (its bounds), u16 rings;
//                             each: u32 positions, each f64 x, y
//                             pop y, x; null unless both are numbers; mode 0: not outside, mode 1: inside

enum {
  SPINNEY_FILTER_VERSION = 1,
  SPINNEY_MAX_FILTER_BYTES = 4 << 20,  // of one filter
  SPINNEY_MAX_STACK = 512              // of a program; the language nests 100 deep, with up to 4 values each
};

// ---- 4. Matcher ------------------------------------------------------------------------------------------------

typedef struct spinney_matcher spinney_matcher;

// allocator may be NULL: then realloc and free.
spinney_status spinney_matcher_new(const spinney_allocator *allocator, spinney_matcher **matcher, spinney_error *error);
void spinney_matcher_free(spinney_matcher *matcher);

// The number of an attribute, which it keeps for the matcher's life; makes one if the name is new.
spinney_status spinney_attribute(spinney_matcher *matcher, const char *name, size_t length, uint32_t *attribute,
                                 spinney_error *error);

// Adds a filter under an id below 2 to the 31st. Ids should be small and dense: memory grows with the largest.
// Filters that are equal byte for byte share one entry.
spinney_status spinney_add(spinney_matcher *matcher, uint32_t id, const uint8_t *filter, size_t length,
                           spinney_error *error);
spinney_status spinney_remove(spinney_matcher *matcher, uint32_t id, spinney_error *error);

typedef struct spinney_stats {
  uint64_t ids;         // added and not removed
  uint64_t entries;     // distinct filters
  uint64_t indexed;     // entries found through the index
  uint64_t scanned;     // entries whose program runs for every event
  uint64_t attributes;
  uint64_t bytes;       // allocated now, all in all
} spinney_stats;
void spinney_matcher_stats(spinney_matcher *matcher, spinney_stats *stats);

// ---- 5. Reader -------------------------------------------------------------------------------------------------

typedef struct spinney_reader spinney_reader;

spinney_status spinney_reader_new(spinney_matcher *matcher, spinney_reader **reader, spinney_error *error);
void spinney_reader_free(spinney_reader *reader);

// The ids whose filters are true of the event, each once, in no particular order. An attribute not among the values is
// null; one that is there twice counts as its last value.
spinney_status spinney_match(spinney_reader *reader, const spinney_value *values, size_t count, const uint32_t **ids,
                             size_t *n_ids, spinney_error *error);

// An event of JSON that has ids, and where its text begins and ends.
typedef struct spinney_hit {
  uint64_t event, begin, end;
} spinney_hit;

// The answer for several events: the ids of event i are ids[offsets[i]] up to, not including, ids[offsets[i + 1]].
typedef struct spinney_matches {
  const uint32_t *ids;
  const uint64_t *offsets;
  size_t events;
  const spinney_hit *hits;  // of JSON
  size_t n_hits;
} spinney_matches;

// A flat object, or an array of them. RFC 8259 and UTF-8, strictly; a key twice, a nested value, or a number beyond a
// double is refused. Nothing is matched if any of it is refused.
spinney_status spinney_match_json(spinney_reader *reader, const char *json, size_t length, spinney_matches *matches,
                                  spinney_error *error);

// A record batch in the Arrow C data interface, neither released nor changed. Columns: integers, floating point,
// booleans, utf8 and large utf8, dictionaries of these, null, and maps from utf8 to any of these, whose entries count
// as attributes. Timestamps are refused (a reading's time is a number).
struct ArrowSchema;
struct ArrowArray;
spinney_status spinney_match_arrow(spinney_reader *reader, const struct ArrowSchema *schema,
                                   const struct ArrowArray *batch, spinney_matches *matches, spinney_error *error);

// ---- 6. Workers ------------------------------------------------------------------------------------------------

typedef enum spinney_simd {
  SPINNEY_SCALAR = 0,
  SPINNEY_SSE2 = 1,
  SPINNEY_AVX2 = 2,
  SPINNEY_AVX512 = 3,
  SPINNEY_NEON = 4
} spinney_simd;

// The best that this machine has is chosen by spinney_matcher_new; tests choose others. BAD_ID if it is not to be had.
spinney_simd spinney_simd_best(void);
const char *spinney_simd_name(spinney_simd simd);
spinney_status spinney_matcher_use(spinney_matcher *matcher, spinney_simd simd, spinney_error *error);

// ---- 7. Columns ------------------------------------------------------------------------------------------------
//
// Rows of JSON, each a flat object, become the columns of one Arrow batch: time, lat and long (numbers), type (a string),
// and maps of all other attributes by type. Attributes that are null are in no map. id and source are not looked at:
// ids are made of the runs that the rows are of, a prefix and a number that goes up by one. A map of units has, for a
// text NAME_unit of a row whose NAME is in the map of numbers, that text under NAME.

typedef struct spinney_columns spinney_columns;

// most: bytes of texts, and entries of a map, in one column; what is above 2 to the 31st - 1, Arrow's own bound, is that.
// allocator may be NULL: then realloc and free.
spinney_status spinney_columns_new(const spinney_allocator *allocator, size_t most, spinney_columns **columns,
                                   spinney_error *error);
void spinney_columns_free(spinney_columns *columns);

typedef struct spinney_id_run {
  uint64_t prefix_length;  // the prefixes of all runs follow one another
  uint64_t first;          // the number of its first row
  uint64_t rows;
} spinney_id_run;

// The rows of one record, an array, after those that are there. left_out: places in the array, in order, of rows that
// are checked but not taken. As strict as spinney_match_json; so is a reserved attribute of another type refused, and
// an array that has not as many rows as the runs.
spinney_status spinney_columns_take(spinney_columns *columns, const char *json, size_t length, const char *prefixes,
                                    const spinney_id_run *runs, size_t n_runs, const uint64_t *left_out,
                                    size_t n_left_out, spinney_error *error);

// So many rows of which everything is null, and every map empty.
spinney_status spinney_columns_skip(spinney_columns *columns, size_t rows, spinney_error *error);

size_t spinney_columns_rows(const spinney_columns *columns);

// Forgets all rows but the first so many; their memory is kept for others.
void spinney_columns_keep(spinney_columns *columns, size_t rows);

typedef struct spinney_buffer {
  const uint8_t *bytes;
  size_t length;
} spinney_buffer;

// As Arrow lays it out. What a column's type does not have is empty, and so is valid where nothing is null.
typedef struct spinney_column {
  spinney_buffer valid;    // a bit each
  spinney_buffer offsets;  // int32_t
  spinney_buffer data;     // doubles, a bit each, or UTF-8
} spinney_column;

typedef struct spinney_map {
  size_t entries;
  spinney_buffer offsets;  // int32_t: where those of each row begin, and where the last ones end
  spinney_column keys, items;
} spinney_map;

enum { SPINNEY_NUMBERS = 0, SPINNEY_TEXTS = 1, SPINNEY_FLAGS = 2, SPINNEY_UNITS = 3, SPINNEY_MAPS = 4 };

typedef struct spinney_rows {
  size_t rows;
  spinney_column id, time, latitude, longitude, type;
  spinney_map maps[SPINNEY_MAPS];
} spinney_rows;

// All rows that are there.
void spinney_columns_give(const spinney_columns *columns, spinney_rows *rows);

#endif
