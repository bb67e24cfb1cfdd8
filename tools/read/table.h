/*
 * table.h - from a pair of numbers to a number: (device, address) to a life, a pointer to an id; and
 * lists that grow.
 *
 * Open addressing, grows, no locks. Single-threaded. (allocator/map.h is for many threads and has
 * one key.)
 */
#ifndef GM_TOOLS_TABLE_H
#define GM_TOOLS_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct gm_table { struct gm_table_entry *entries; size_t count, room; };

/* A table of zeros is empty. gm_table_free leaves it so. */
void gm_table_free(struct gm_table *table);

/* Store @value, which is not 0, under (@a, @b); it replaces the value there. Returns 0 or -ENOMEM. */
int gm_table_put(struct gm_table *table, uint64_t a, uint64_t b, uint64_t value);

/* Return the value under (@a, @b), or 0 if there is none. gm_table_take also removes it. */
uint64_t gm_table_get(const struct gm_table *table, uint64_t a, uint64_t b);
uint64_t gm_table_take(struct gm_table *table, uint64_t a, uint64_t b);

/* Add an item of @bytes behind the *@count items of a list, and count it. @list_at points to the pointer
 * to the list, which may move and is NULL before the first item. Returns the item, not initialised; NULL:
 * out of memory, and nothing has changed. Items may be removed from the end; free() the list. */
void *gm_list_add(void *list_at, size_t *count, size_t bytes);

#endif
