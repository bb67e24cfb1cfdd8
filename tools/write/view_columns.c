/*
 * view_columns.c - columns of numbers for the viewer: see view.h. One thread.
 *
 * A list of many items is written as columns of numbers, each number as the difference from an expected one. A column
 * is written by planes: first the lowest byte of all its numbers, then the next byte of all. Nearly all high bytes are
 * 0, and zlib needs at most a bit for each of those.
 */
#include "tools/write/view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/value.h"

void gm_pack_put(struct gm_pack *pack, const void *bytes, size_t count)
{
	unsigned char *larger;

	if (pack->count + count > pack->room && !pack->error) {
		size_t room = (pack->count + count) * 2;

		larger = realloc(pack->bytes, room);
		if (larger) {
			pack->bytes = larger;
			pack->room = room;
		} else {
			pack->error = -ENOMEM;
		}
	}
	if (pack->error)
		return;
	memcpy(pack->bytes + pack->count, bytes, count);
	pack->count += count;
}

/* ---- texts and numbers of the header ------------------------------------------------------------ */

int64_t gm_pack_text(struct gm_packing *p, const char *text)
{
	const char *one = gm_values_string(p->values, text, strlen(text));
	uint64_t at = one ? gm_table_get(&p->text_ids, (uint64_t)(uintptr_t)one, 0) : 0;
	char *clean;

	if (at || !one)
		return at ? (int64_t)at - 1 : 0;
	clean = strdup(one);
	at = json_array_size(p->texts) + 1;
	if (!clean || gm_table_put(&p->text_ids, (uint64_t)(uintptr_t)one, 0, at)) {
		p->planes.error = -ENOMEM;
	} else {
		gm_value_repair(clean, strlen(clean));
		json_array_append_new(p->texts, gm_value_is_text((unsigned char *)clean, strlen(clean)) ?
				      json_string(clean) : json_string("?"));
	}
	free(clean);
	return (int64_t)at - 1;
}

/* JavaScript's numbers are exact below this; others are written as texts. */
#define EXACT (1LL << 53)

int64_t gm_pack_number(struct gm_packing *p, int64_t number)
{
	uint64_t at = gm_table_get(&p->number_ids, (uint64_t)number, 1);
	char text[24];

	if (at)
		return (int64_t)at - 1;
	at = json_array_size(p->numbers) + 1;
	if (gm_table_put(&p->number_ids, (uint64_t)number, 1, at))
		p->planes.error = -ENOMEM;
	snprintf(text, sizeof(text), "%lld", (long long)number);
	json_array_append_new(p->numbers, number > -EXACT && number < EXACT ? json_integer(number) : json_string(text));
	return (int64_t)at - 1;
}

/* ---- columns ------------------------------------------------------------------------------------ */

/* Return 2 * @number, or -2 * @number - 1 for a negative one: small absolute values have few bytes. */
static uint64_t zigzag(int64_t number)
{
	return (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
}

/* Replace each number of p->numbers_of by its difference from the expected one, the last number first, because each
 * needs earlier numbers. PAIRED numbers are differences already (EVENT of view_pack.c). */
static void differ(struct gm_packing *p, size_t count, enum gm_coding coding)
{
	int64_t *numbers = p->numbers_of;

	p->base = 0;
	if (coding == GM_DELTA && count) {
		p->base = numbers[0];
		for (size_t i = count; i-- > 1;)
			numbers[i] = gm_wrap_subtract(numbers[i], numbers[i - 1]);
		numbers[0] = 0;
	}
	if (coding == GM_MATED)
		for (size_t i = count; i--;)
			if (p->mates[i])
				numbers[i] = gm_wrap_subtract(numbers[i], numbers[i - p->mates[i]]);
}

void gm_pack_planes(struct gm_packing *p, const char *prefix, const char *name, size_t count, const char *coding,
		       bool ordered)
{
	uint64_t all = 0;
	int bytes = 0;
	char whole[48];
	unsigned char *plane = malloc(count + 1);

	for (size_t i = 0; i < count; i++)
		all |= zigzag(p->numbers_of[i]);
	while (bytes < 8 && all >> (8 * bytes))
		bytes++;
	for (int k = 0; plane && k < bytes; k++) {
		for (size_t i = 0; i < count; i++)
			plane[i] = (unsigned char)(zigzag(p->numbers_of[ordered ? p->order[i] : i]) >> (8 * k));
		gm_pack_put(&p->planes, plane, count);
	}
	snprintf(whole, sizeof(whole), "%s%s", prefix, name);
	if (!plane || json_array_append_new(p->columns, json_pack("[ssiIbI]", whole, coding, bytes,
								  (json_int_t)count, ordered, (json_int_t)p->base)))
		p->planes.error = -ENOMEM;
	free(plane);
}

void gm_pack_column(struct gm_packing *p, const char *prefix, const char *name, size_t count, enum gm_coding coding,
		       bool ordered)
{
	static const char *const codings[] = { "plain", "delta", "mated", "paired" };

	differ(p, count, coding);
	gm_pack_planes(p, prefix, name, count, codings[coding], ordered);
}
