/*
 * json_flat.h - dicts of JSON whose text was read before, with what they were read as.
 *
 * PyTorch's JSON says every frame of every stack again: most of it are a few texts, many times. Only
 * flat ones are known, those with no container and no escape in them. Single-threaded.
 */
#ifndef GM_TOOLS_JSON_FLAT_H
#define GM_TOOLS_JSON_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tools/read/value.h"

/* Are the 8 bytes at @at all ones that stand for themselves in a text, ASCII and not DEL? */
static inline bool gm_flat_plain(const char *at)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), top = ones << 7;
	uint64_t word, quote, back, del;

	memcpy(&word, at, 8);
	quote = word ^ ones * '"';
	back = word ^ ones * '\\';
	del = word ^ ones * 0x7f;
	/* A byte with its top bit set, one that is 0 after the exclusive or, one below 0x20: a borrow may
	 * say so of a byte above such a one, never of a word that has none. */
	return !((word | (quote - ones) | (back - ones) | (del - ones) | (word - ones * 0x20)) & top);
}

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
