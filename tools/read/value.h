/*
 * value.h - the tree of values of a JSON document or a pickle.
 *
 * A tree lives only while a snapshot is read (snapshot.h), or while a document of PyTorch is written again unchanged.
 * Values lie in an arena and are freed with it. Equal texts in an arena are one value, so texts can be compared by
 * their pointers. Single-threaded.
 */
#ifndef GM_TOOLS_VALUE_H
#define GM_TOOLS_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gm_value_type {
	GM_VALUE_NULL, GM_VALUE_BOOL, GM_VALUE_INT, GM_VALUE_UINT, GM_VALUE_REAL, GM_VALUE_TEXT,
	GM_VALUE_NUMBERS,		/* a list of integers only, packed */
	GM_VALUE_BLOCKS,		/* a list of blocks of a journal, packed: snapshot.h; no document has one */
	GM_VALUE_LIST, GM_VALUE_TUPLE, GM_VALUE_DICT
};

struct gm_value {
	uint8_t type;			/* enum gm_value_type; GM_VALUE_UINT only from 2^63 on */
	uint8_t room_log2;		/* log2 of the items that fit: see value.c */
	uint8_t mark;			/* for gm_value_sound */
	bool lasting;			/* the value may be in several places of the tree */
	uint32_t count;			/* of items, numbers or bytes of a text; a name and its value are two items */
	union {
		int64_t integer;
		uint64_t word;
		double real;
		const char *text;	/* UTF-8 that may hold lone surrogates; ends with NUL */
		const int64_t *numbers;
		const struct gm_snapshot_block *blocks;
		const void *packed;		/* GM_VALUE_NUMBERS or GM_VALUE_BLOCKS */
		const struct gm_value **items;	/* of a dict: name, value, name, value ... */
	} u;
};

struct gm_values;
struct gm_snapshot_block;

/* Open an arena. NULL: out of memory. */
struct gm_values *gm_values_open(void);
void gm_values_close(struct gm_values *values);

/* Free the tree. Texts, lists of blocks and memory of gm_values_room stay until the arena is freed. */
void gm_values_free_tree(struct gm_values *values);

/* Make a value. Each of these functions returns NULL if memory is short. */
const struct gm_value *gm_value_null(void);
const struct gm_value *gm_value_bool(bool truth);
const struct gm_value *gm_value_int(struct gm_values *values, int64_t integer);
const struct gm_value *gm_value_uint(struct gm_values *values, uint64_t word);
const struct gm_value *gm_value_real(struct gm_values *values, double real);
const struct gm_value *gm_value_text(struct gm_values *values, const char *text, size_t bytes);
const struct gm_value *gm_value_numbers(struct gm_values *values, const int64_t *numbers, size_t count);
const struct gm_value *gm_value_blocks(struct gm_values *values, const struct gm_snapshot_block *blocks, size_t count);

/* Return the arena's only copy of @text, which lives as long as the arena. NULL: out of memory. */
const char *gm_values_string(struct gm_values *values, const char *text, size_t bytes);

/* Return memory that lives as long as the arena, not initialised. NULL: out of memory. */
void *gm_values_room(struct gm_values *values, size_t bytes);

/* Make an empty container, which grows by gm_value_append (0 or -ENOMEM). */
struct gm_value *gm_value_container(struct gm_values *values, enum gm_value_type type);
int gm_value_append(struct gm_values *values, struct gm_value *to,
		    const struct gm_value *const *items, size_t count);

/*
 * A tree under construction. One stack holds the items of all open containers, those of the outermost container first.
 * When a container ends, one value replaces its items. While a list has integers only, its items are plain numbers.
 */
struct gm_building {
	struct gm_values *values;
	union gm_item { const struct gm_value *value; int64_t number; } *stack;
	size_t count, room;		/* of the stack, which keeps its room for the next large container */
};

/*
 * Each returns 0 or -ENOMEM.
 *   gm_build_room     make room for one more item
 *   gm_build_add      push @value; NULL: there was no memory for the value, return -ENOMEM
 *   gm_build_unpack   turn the numbers from item @floor on into values
 *   gm_build_end      replace the values from item @floor on by a list, or a @dict, of them
 *   gm_build_numbers  replace the numbers from item @floor on by a list of them
 */
int gm_build_grow(struct gm_building *building);
static inline int gm_build_room(struct gm_building *building)
{
	return building->count < building->room ? 0 : gm_build_grow(building);
}
int gm_build_add(struct gm_building *building, const struct gm_value *value);
int gm_build_unpack(struct gm_building *building, size_t floor);
int gm_build_end(struct gm_building *building, size_t floor, bool dict);
int gm_build_numbers(struct gm_building *building, size_t floor);

/* Is what @root reaches free of cycles, and at most @depth (200) containers deep? */
bool gm_value_sound(const struct gm_value *root, int depth);

/* Return the value of @key in @dict (the last one, if there are several); NULL: there is none, or @dict is no dict. */
const struct gm_value *gm_value_get(const struct gm_value *dict, const char *key);

/* Return a number that was written with a point, an exponent or too many digits as an integer: without its fraction,
 * and cut to the range of int64_t. */
int64_t gm_value_of_real(double real);

/* Return the value of @key in @dict if it has the right type; else 0 or NULL. A tuple counts as a list, but
 * GM_VALUE_NUMBERS and GM_VALUE_BLOCKS do not. A real is converted by gm_value_of_real. */
int64_t gm_value_number(const struct gm_value *dict, const char *key);
int64_t gm_value_as_number(const struct gm_value *value);	/* of @value itself, which may be NULL */
const struct gm_value *gm_value_list(const struct gm_value *dict, const char *key);
const struct gm_value *gm_value_as_list(const struct gm_value *value);
size_t gm_value_length(const struct gm_value *list);	/* 0 for NULL */

/* Return number @i of a list, packed or not; 0: the item is no number or lies beyond the end. */
int64_t gm_value_int_at(const struct gm_value *list, size_t i);

/* Return item @i of a list; NULL: @i lies beyond its end, or the list is packed. */
const struct gm_value *gm_value_at(const struct gm_value *list, size_t i);

/* Return the length of the character at @at, of which @left bytes are there; 0: it is none that JSON accepts. */
size_t gm_value_letter(const unsigned char *at, size_t left);

/* Are these bytes UTF-8? Lone surrogates of three bytes, as Python's 'surrogatepass' writes them, count as UTF-8. */
bool gm_value_is_text(const unsigned char *bytes, size_t count);

/* Replace each lone surrogate by U+FFFD, which has three bytes, too. */
void gm_value_repair(char *text, size_t bytes);

/* Convert @value to jansson's values, with U+FFFD for lone surrogates, and subtract the number of values from *@left.
 * NULL: out of memory, or there are more values than *@left. */
json_t *gm_value_to_json(const struct gm_value *value, size_t *left);

#endif
