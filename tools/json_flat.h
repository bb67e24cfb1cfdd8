/*
 * json_flat.h - dicts of JSON whose text was read before, with what they were read as.
 *
 * PyTorch's JSON says every frame of every stack again: most of it are a few texts, many times. Only
 * flat ones are known, those with no container and no escape in them. Single-threaded.
 */
#ifndef GM_TOOLS_JSON_FLAT_H
#define GM_TOOLS_JSON_FLAT_H

#include <stddef.h>
#include <stdint.h>

#include "tools/value.h"

struct gm_flat { uint64_t *table; size_t entries, room; char *kept; size_t bytes; };

/* The bytes of the flat dict that begins at @at ('{'), and @ret_hash of them. 0: it is not flat, is
 * long, or does not end well within the @have bytes. */
size_t gm_flat_end(const char *at, size_t have, uint64_t *ret_hash);

/* One that will be asked for: called for several at once, first this of all, then that, so that their
 * cache lines come together. */
void gm_flat_expect(const struct gm_flat *flat, uint64_t hash);
void gm_flat_fetch(const struct gm_flat *flat, uint64_t hash);

/* What the same text was read as, NULL: it was not. */
const struct gm_value *gm_flat_get(const struct gm_flat *flat, const char *at, size_t bytes, uint64_t hash);

/* Keep a text before it is read: afterwards its bytes may be gone. Returns the place of what it is
 * read as, good until the next is kept; NULL: it is not kept, for want of memory or of a place. */
const struct gm_value **gm_flat_keep(struct gm_flat *flat, const char *at, size_t bytes, uint64_t hash);
void gm_flat_free(struct gm_flat *flat);

#endif
