/*
 * table.c - a hash table from pairs of numbers to numbers: see table.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/read/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIST_LEAST 64u			/* the room of a new list, in items */

struct gm_table_entry { uint64_t a, b, value; };	/* @value 0: the entry is free */

static size_t home(const struct gm_table *table, uint64_t a, uint64_t b)
{
	uint64_t hash = (a * UINT64_C(0x9e3779b97f4a7c15)) ^ b;

	hash = (hash ^ (hash >> 32)) * UINT64_C(0xd6e8feb86659fd93);
	return (size_t)(hash ^ (hash >> 32)) & (table->room - 1);
}

/* Return the place of (@a, @b), or the free place where it would go. The table has room. */
static size_t find(const struct gm_table *table, uint64_t a, uint64_t b)
{
	size_t at = home(table, a, b);

	while (table->entries[at].value && (table->entries[at].a != a || table->entries[at].b != b))
		at = (at + 1) & (table->room - 1);
	return at;
}

void gm_table_free(struct gm_table *table)
{
	free(table->entries);
	*table = (struct gm_table){ NULL, 0, 0 };
}

static int grow(struct gm_table *table)
{
	struct gm_table larger = { NULL, table->count, table->room ? table->room * 2 : 256 };

	larger.entries = calloc(larger.room, sizeof(*larger.entries));
	if (!larger.entries)
		return -ENOMEM;
	for (size_t i = 0; i < table->room; i++)
		if (table->entries[i].value)
			larger.entries[find(&larger, table->entries[i].a, table->entries[i].b)] =
				table->entries[i];
	free(table->entries);
	*table = larger;
	return 0;
}

int gm_table_put(struct gm_table *table, uint64_t a, uint64_t b, uint64_t value)
{
	size_t at;

	if (!value) {
		gm_table_take(table, a, b);
		return 0;
	}
	if (table->count >= table->room / 2 && grow(table))
		return -ENOMEM;
	at = find(table, a, b);
	table->count += !table->entries[at].value;
	table->entries[at] = (struct gm_table_entry){ a, b, value };
	return 0;
}

uint64_t gm_table_get(const struct gm_table *table, uint64_t a, uint64_t b)
{
	return table->room ? table->entries[find(table, a, b)].value : 0;
}

uint64_t gm_table_take(struct gm_table *table, uint64_t a, uint64_t b)
{
	size_t mask = table->room - 1, hole, at;
	uint64_t value;

	if (!table->room)
		return 0;
	hole = find(table, a, b);
	value = table->entries[hole].value;
	if (!value)
		return 0;
	table->count--;
	table->entries[hole].value = 0;
	/* Move entries that were placed behind the hole because of it, so that no search ends too early. */
	for (at = (hole + 1) & mask; table->entries[at].value; at = (at + 1) & mask) {
		size_t from = home(table, table->entries[at].a, table->entries[at].b);

		if (((at - from) & mask) < ((at - hole) & mask))
			continue;
		table->entries[hole] = table->entries[at];
		table->entries[at].value = 0;
		hole = at;
	}
	return value;
}

/* The room of a list is a power of two, so its count tells when the list is full. */
void *gm_list_add(void *list_at, size_t *count, size_t bytes)
{
	char *list;

	memcpy(&list, list_at, sizeof(list));
	if (!*count || (*count >= LIST_LEAST && !(*count & (*count - 1)))) {
		list = reallocarray(list, *count ? 2 * *count : LIST_LEAST, bytes);
		if (!list)
			return NULL;
		memcpy(list_at, &list, sizeof(list));
	}
	return list + (*count)++ * bytes;
}
