/*
 * value.h - the tree of values that JSON, or a pickle, is read as.
 *
 * A tree lives only while a snapshot is read (snapshot.h), or while a document of PyTorch's is written again as it
 * was. Values lie in an arena and are freed with it. Equal texts in an arena are one value, so two of them are
 * compared by their pointers. Single-threaded.
 */
#ifndef GM_TOOLS_VALUE_H
#define GM_TOOLS_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gm_value_type {
	GM_VALUE_NULL, GM_VALUE_BOOL, GM_VALUE_INT, GM_VALUE_UINT, GM_VALUE_REAL, GM_VALUE_TEXT,
	GM_VALUE_NUMBERS,		/* a list of integers and of nothing else, packed */
	GM_VALUE_BLOCKS,		/* a list of blocks of a journal, packed: snapshot.h; no document has one */
	GM_VALUE_LIST, GM_VALUE_TUPLE, GM_VALUE_DICT
};

struct gm_value {
	uint8_t type;			/* enum gm_value_type; GM_VALUE_UINT only from 2^63 on */
	uint8_t room_log2;		/* how many items fit: see value.c */
	uint8_t mark;			/* of gm_value_sound */
	bool lasting;			/* it may be in many places of the tree */
	uint32_t count;			/* items, numbers, bytes of a text; of a dict names and values */
	union {
		int64_t integer;
		uint64_t word;
		double real;
		const char *text;	/* UTF-8 that may hold lone surrogates; ends with NUL */
		const int64_t *numbers;
		const struct gm_snapshot_block *blocks;
		const void *packed;		/* either of these two */
		const struct gm_value **items;	/* of a dict: name, value, name, value ... */
	} u;
};

struct gm_values;
struct gm_snapshot_block;

/* An arena. NULL: out of memory. */
struct gm_values *gm_values_open(void);
void gm_values_close(struct gm_values *values);

/* Free all of it but the texts, the lists of blocks and what gm_values_room gave. */
void gm_values_free_tree(struct gm_values *values);

/* Each returns NULL when it is out of memory. */
const struct gm_value *gm_value_null(void);
const struct gm_value *gm_value_bool(bool truth);
const struct gm_value *gm_value_int(struct gm_values *values, int64_t integer);
const struct gm_value *gm_value_uint(struct gm_values *values, uint64_t word);
const struct gm_value *gm_value_real(struct gm_values *values, double real);
const struct gm_value *gm_value_text(struct gm_values *values, const char *text, size_t bytes);
const struct gm_value *gm_value_numbers(struct gm_values *values, const int64_t *numbers, size_t count);
const struct gm_value *gm_value_blocks(struct gm_values *values, const struct gm_snapshot_block *blocks, size_t count);

/* @text, as the one copy of it that lives as long as the arena. NULL: out of memory. */
const char *gm_values_string(struct gm_values *values, const char *text, size_t bytes);

/* Memory that lives as long, not initialised. NULL: out of memory. */
void *gm_values_room(struct gm_values *values, size_t bytes);

/* A container, which grows. gm_value_append: 0 or -ENOMEM. */
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
	size_t count, room;		/* of the stack, which never shrinks: large containers come and go */
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

/* What a dict has under @key (the last of several), NULL if nothing or no dict. */
const struct gm_value *gm_value_get(const struct gm_value *dict, const char *key);

/* The integer of a number that was written with a point or an exponent, or with too many digits: without
 * its fraction, and cut to the range of int64_t. */
int64_t gm_value_of_real(double real);

/* What gm_value_get finds, if it is of that type; else 0 or NULL. A tuple is a list here, GM_VALUE_NUMBERS and
 * GM_VALUE_BLOCKS are none. A real is what gm_value_of_real makes of it. */
int64_t gm_value_number(const struct gm_value *dict, const char *key);
int64_t gm_value_as_number(const struct gm_value *value);	/* of @value itself, which may be NULL */
const struct gm_value *gm_value_list(const struct gm_value *dict, const char *key);
const struct gm_value *gm_value_as_list(const struct gm_value *value);
size_t gm_value_length(const struct gm_value *list);	/* 0 of NULL */

/* The i-th number of a list, packed or not; 0 when it is no number, or beyond the end. */
int64_t gm_value_int_at(const struct gm_value *list, size_t i);

/* The i-th of a list, NULL beyond its end and of packed integers. */
const struct gm_value *gm_value_at(const struct gm_value *list, size_t i);

/* How many of the @left bytes at @at the character there has; 0: it is none, or none that JSON takes. */
size_t gm_value_letter(const unsigned char *at, size_t left);

/* Is it UTF-8? Lone surrogates in three bytes pass, as Python's 'surrogatepass' writes them. */
bool gm_value_is_text(const unsigned char *bytes, size_t count);

/* U+FFFD in the place of each lone surrogate: it has three bytes, too. */
void gm_value_repair(char *text, size_t bytes);

/* @value as jansson has it, with U+FFFD in the place of lone surrogates. NULL: out of memory, or more
 * than *@left values; what is left of them then stands there. */
json_t *gm_value_to_json(const struct gm_value *value, size_t *left);

#endif
