/*
 * object_symbol.h - the symbols that a loaded object exports, read from its own tables.
 *
 * dlsym would take the loader's lock, and does not see what was loaded RTLD_LOCAL. This reads the
 * dynamic section and the GNU hash table where they are mapped, with gm_probe_copy.
 *
 * Any thread, any signal context. No lock, no malloc, errno kept.
 */
#ifndef GM_RECORDER_OBJECT_SYMBOL_H
#define GM_RECORDER_OBJECT_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/modules/object.h"

struct gm_symbols {
	uintptr_t base;			/* load bias */
	uintptr_t start, end;		/* of the object: nothing outside is returned */
	uintptr_t symbols, strings;
	uintptr_t bloom, buckets, chains;
	uint32_t bucket_count, first, bloom_words, bloom_shift;
};

/* Find @object's tables. Returns false where it has none, or none with a GNU hash table. */
bool gm_symbols_open(struct gm_symbols *ret_symbols, const struct gm_object *object);

/* The address of @name, and in @ret_bytes (may be NULL) its size; 0 when it is not exported. */
uintptr_t gm_symbols_find(const struct gm_symbols *symbols, const char *name, size_t *ret_bytes);

#endif
