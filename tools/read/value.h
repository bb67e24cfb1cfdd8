/*
 * value.h - a tree of values as pickle and JSON know them, for files that are not ours.
 *
 * Values lie in one arena and are given back with it. Equal texts are one value, and so are equal
 * containers that came through gm_value_shared: a stack that a file repeats a million times is kept
 * once, and comparing it is comparing a pointer. So are the names of dicts that have the same ones:
 * what a million events have in common is kept once, too. Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_VALUE_H
#define GM_TOOLS_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gm_value_type {
	GM_VALUE_NULL, GM_VALUE_BOOL, GM_VALUE_INT, GM_VALUE_UINT, GM_VALUE_REAL, GM_VALUE_TEXT,
	GM_VALUE_NUMBERS,		/* a list of integers and of nothing else, packed */
	GM_VALUE_LIST, GM_VALUE_TUPLE, GM_VALUE_DICT
};

struct gm_value {
	uint8_t type;			/* enum gm_value_type; GM_VALUE_UINT only from 2^63 on */
	uint8_t room_log2;		/* of items: how many fit, while a container grows; see value.c */
	uint8_t mark;			/* of gm_value_sound */
	uint8_t height;			/* of who fills a container: how many are in each other there */
	uint32_t count;			/* items, numbers, bytes of a text; of a dict see gm_value_members */
	union {
		int64_t integer;
		uint64_t word;
		double real;
		const char *text;	/* UTF-8 that may hold lone surrogates; ends with NUL */
		const int64_t *numbers;
		const struct gm_value **items;
	} u;
};

struct gm_values;

/* An arena that takes at most @limit_bytes. NULL: out of memory. */
struct gm_values *gm_values_open(size_t limit_bytes);
void gm_values_close(struct gm_values *values);
size_t gm_values_bytes(const struct gm_values *values);

/* The members of a dict: a list of their names, and behind it their values. Without any, nothing. */
static inline uint32_t gm_value_members(const struct gm_value *dict)
{
	return dict->count ? dict->count - 1 : 0;
}

static inline const struct gm_value *gm_value_name(const struct gm_value *dict, uint32_t i)
{
	return dict->u.items[0]->u.items[i];
}

static inline const struct gm_value *gm_value_member(const struct gm_value *dict, uint32_t i)
{
	return dict->u.items[1 + i];
}

/* Each returns NULL when memory, or the limit, is at its end. Items of a dict are given as its names
 * and values in turn. */
const struct gm_value *gm_value_null(void);
const struct gm_value *gm_value_bool(bool truth);
const struct gm_value *gm_value_int(struct gm_values *values, int64_t integer);
const struct gm_value *gm_value_uint(struct gm_values *values, uint64_t word);
const struct gm_value *gm_value_real(struct gm_values *values, double real);
const struct gm_value *gm_value_text(struct gm_values *values, const char *text, size_t bytes);
const struct gm_value *gm_value_shared(struct gm_values *values, enum gm_value_type type,
				       const struct gm_value *const *items, size_t count);

/* U+FFFD in the place of every lone surrogate in a text: what is made from now on is not looked for
 * among the texts that changed. */
void gm_values_scrub(struct gm_values *values);

/* A container without looking for an equal one; and a list of integers. */
const struct gm_value *gm_value_plain(struct gm_values *values, enum gm_value_type type,
				      const struct gm_value *const *items, size_t count);
const struct gm_value *gm_value_numbers(struct gm_values *values, const int64_t *numbers, size_t count);

/* A list of @count integers, to be filled by the caller. */
const struct gm_value *gm_value_room(struct gm_values *values, size_t count, int64_t **ret_numbers);

/* A container that grows. gm_value_append: 0 or -ENOMEM. */
struct gm_value *gm_value_container(struct gm_values *values, enum gm_value_type type);
int gm_value_append(struct gm_values *values, struct gm_value *to,
		    const struct gm_value *const *items, size_t count);

/* Is what @root reaches free of cycles, and at most @depth (200) containers deep? */
bool gm_value_sound(const struct gm_value *root, unsigned int depth);

/* What a dict has under @key (the last of several), NULL if nothing or no dict. */
const struct gm_value *gm_value_get(const struct gm_value *dict, const char *key);

/* A number that is written with a point or an exponent, or is too long, as tools leave them in JSON:
 * without what is behind the point, and no further than the ends of 64 bits. */
int64_t gm_value_of_real(double real);

/* The same, when it is of that type; 0, "", or no items otherwise. A tuple is a list here;
 * GM_VALUE_NUMBERS is none. A real is as gm_value_of_real says. */
int64_t gm_value_number(const struct gm_value *dict, const char *key);
int64_t gm_value_as_number(const struct gm_value *value);	/* of @value itself, which may be NULL */
const char *gm_value_string(const struct gm_value *dict, const char *key);
const struct gm_value *gm_value_list(const struct gm_value *dict, const char *key);
size_t gm_value_length(const struct gm_value *list);	/* 0 of NULL */

/* What a dict has under @key that may be a list of integers, packed or not. NULL: something else. */
const struct gm_value *gm_value_row(const struct gm_value *dict, const char *key);
const struct gm_value *gm_value_as_row(const struct gm_value *value);	/* @value itself, likewise */

/* The i-th of such a list; 0 when it is no number, or beyond its end. */
int64_t gm_value_int_at(const struct gm_value *list, size_t i);

/* The i-th of a list, NULL beyond its end and of packed integers. */
const struct gm_value *gm_value_at(const struct gm_value *list, size_t i);

/* Is it UTF-8? Lone surrogates in three bytes pass, as Python's 'surrogatepass' writes them. */
bool gm_value_is_text(const unsigned char *bytes, size_t count);

#endif
