/*
 * object_symbol.h - find the symbols that a loaded object exports, in the object's own tables.
 *
 * dlsym would take the loader's lock, and does not find symbols of objects that were loaded RTLD_LOCAL. So
 * the dynamic section and the GNU hash table are read where they are mapped, with gm_probe_copy.
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
	uintptr_t start, end;		/* of the object; addresses outside are never returned */
	uintptr_t symbols, strings;
	uintptr_t bloom, buckets, chains;
	uint32_t bucket_count, first, bloom_words, bloom_shift;
};

/* Find the tables of @object. Returns false when there are none, or no GNU hash table. */
bool gm_symbols_open(struct gm_symbols *ret_symbols, const struct gm_object *object);

/* Return the address of @name, and its size in @ret_bytes (may be NULL); 0: @name is not exported. */
uintptr_t gm_symbols_find(const struct gm_symbols *symbols, const char *name, size_t *ret_bytes);

#endif
