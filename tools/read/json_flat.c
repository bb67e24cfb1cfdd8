/*
 * json_flat.c - dicts of JSON whose text was read before: see json_flat.h. One thread.
 *
 * An entry of the table: the upper half of the hash, and above 0 where the text is kept, in words:
 *
 *	kept:	| value, 8 bytes | length, 8 bytes | text, filled up to 8 bytes | ...
 */
#include "tools/read/json_flat.h"

#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>


#define ONE_MOST ((size_t)4096)		/* bytes of a text */
#define PROBES 16
#define KEPT_MOST ((size_t)64 << 20)	/* of all */
#define EACH(byte) ((uint64_t)(byte) * UINT64_C(0x0101010101010101))
#define TOP EACH(0x80)
#define HALF UINT64_C(0xffffffff)		/* of an entry: the place */

struct kept { const struct gm_value *value; size_t bytes; char text[]; };

/* The top bit of every byte of @word that is @byte, and no other bit. */
static inline uint64_t where(uint64_t word, unsigned char byte)
{
	uint64_t other = word ^ EACH(byte);

	return ~(((other & ~TOP) + ~TOP) | other) & TOP;
}

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 32);
}

size_t gm_flat_end(const char *at, size_t have, uint64_t *ret_hash)
{
	size_t most = have < ONE_MOST ? have : ONE_MOST;
	uint64_t hash = 0, inside = 0;		/* all ones while in a text */

	for (size_t i = 0; i + 8 <= most; i += 8) {
		uint64_t word, texts, ends, bad;
		size_t left;

		memcpy(&word, at + i, 8);
		word = le64toh(word);
		texts = where(word, '"');	/* from here: which bytes lie in a text */
		texts ^= texts << 8;
		texts ^= texts << 16;
		texts ^= texts << 32;
		texts ^= inside & TOP;
		inside = texts >> 63 ? ~UINT64_C(0) : 0;
		ends = where(word, '}') & ~texts;
		bad = where(word, '\\') | (where(word, '[') & ~texts);
		bad |= where(word, '{') & ~texts & (i ? TOP : ~UINT64_C(0xff));
		if (!ends && !bad) {
			hash = mix(hash, word);
			continue;
		}
		if (!ends || (bad && (bad & -bad) < ends))
			return 0;
		left = (size_t)__builtin_ctzll(ends) / 8 + 1;
		*ret_hash = mix(hash, word << (64 - 8 * left));
		return i + left;
	}
	return 0;
}

static struct kept *kept_at(const struct gm_flat *flat, uint64_t entry)
{
	return (struct kept *)(void *)(flat->kept + ((entry & HALF) - 1) * 8);
}

/* The place of @entry in @table: where it is, or may be put. Texts that are made to have one hash
 * find no place soon, and are read like others. */
static uint64_t *place_of(uint64_t *table, size_t room, uint64_t hash, size_t i)
{
	return i < PROBES ? &table[((hash >> 32) + i) & (room - 1)] : NULL;
}

void gm_flat_expect(const struct gm_flat *flat, uint64_t hash)
{
	if (flat->room)
		__builtin_prefetch(place_of(flat->table, flat->room, hash, 0));
}

void gm_flat_fetch(const struct gm_flat *flat, uint64_t hash)
{
	uint64_t *place = flat->room ? place_of(flat->table, flat->room, hash, 0) : NULL;

	if (place && *place)
		__builtin_prefetch(kept_at(flat, *place));
}

const struct gm_value *gm_flat_get(const struct gm_flat *flat, const char *at, size_t bytes, uint64_t hash)
{
	uint64_t *place;

	if (!flat->room)
		return NULL;
	for (size_t i = 0; (place = place_of(flat->table, flat->room, hash, i)) && *place; i++) {
		const struct kept *kept = kept_at(flat, *place);

		if (!((*place ^ hash) & ~HALF) && kept->bytes == bytes && !memcmp(kept->text, at, bytes))
			return kept->value;
	}
	return NULL;
}

static void put(uint64_t *table, size_t room, uint64_t entry)
{
	uint64_t *place;
	size_t i = 0;

	while ((place = place_of(table, room, entry, i)) && *place)
		i++;
	if (place)
		*place = entry;
}

static bool widen(struct gm_flat *flat)
{
	size_t room = flat->room ? flat->room * 2 : 4096;
	uint64_t *table = calloc(room, sizeof(*table));

	if (!table)
		return false;
	for (size_t i = 0; i < flat->room; i++)
		if (flat->table[i])
			put(table, room, flat->table[i]);
	free(flat->table);
	flat->table = table;
	flat->room = room;
	return true;
}

const struct gm_value **gm_flat_keep(struct gm_flat *flat, const char *at, size_t bytes, uint64_t hash)
{
	size_t takes = (sizeof(struct kept) + bytes + 7) & ~(size_t)7;
	struct kept *kept;

	if (!flat->kept)		/* it takes what is written to alone */
		flat->kept = calloc(1, KEPT_MOST);
	if (!flat->kept || flat->bytes + takes > KEPT_MOST || (flat->entries >= flat->room / 2 && !widen(flat)))
		return NULL;
	put(flat->table, flat->room, (hash & ~HALF) | (flat->bytes / 8 + 1));
	kept = kept_at(flat, flat->bytes / 8 + 1);
	*kept = (struct kept){ NULL, bytes };
	memcpy(kept->text, at, bytes);
	flat->bytes += takes;
	flat->entries++;
	return &kept->value;
}

void gm_flat_free(struct gm_flat *flat)
{
	free(flat->table);
	free(flat->kept);
	*flat = (struct gm_flat){ .table = NULL };
}
