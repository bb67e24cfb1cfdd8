/*
 * object_symbol.c - find the symbols that a loaded object exports (see object_symbol.h).
 *
 * Owns no state. The object's tables may hold anything, so each read goes through the kernel and every walk is
 * bounded.
 */
#include "recorder/modules/object_symbol.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include "recorder/journal/probe.h"

#define DYNAMIC_MAX 256			/* entries that are read; objects have about 30 */
#define DYNAMIC_STEP 32			/* entries read at once */
#define CHAIN_MAX 4096			/* symbols of one bucket that are read; buckets have about 2 */
#define NAME_MAX_BYTES 64

static bool read_at(uintptr_t at, void *dst, size_t bytes)
{
	return gm_probe_copy(dst, at, bytes) == bytes;
}

static uint32_t hash_gnu(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (uint8_t)*name;
	return h;
}

/* Add the load bias to @value unless the loader has added it. In some objects (the vDSO) the loader does not. */
static uintptr_t address_of(const struct gm_symbols *s, uintptr_t value)
{
	return value < s->base ? s->base + value : value;
}

bool gm_symbols_open(struct gm_symbols *s, const struct gm_object *object)
{
	ElfW(Dyn) entries[DYNAMIC_STEP];
	uintptr_t dynamic, hash = 0;
	struct gm_elf elf;
	uint32_t head[4];

	memset(s, 0, sizeof(*s));
	s->start = object->start;
	s->end = object->end;
	if (!gm_elf_read(s->start, &elf) || !elf.dynamic)
		return false;
	s->base = elf.base;
	dynamic = elf.base + elf.dynamic;
	for (unsigned int i = 0, count = 0; i < DYNAMIC_MAX; i++) {
		const ElfW(Dyn) *entry = &entries[i % DYNAMIC_STEP];

		if (i % DYNAMIC_STEP == 0)
			count = i + (unsigned int)(gm_probe_copy(entries, dynamic + i * sizeof(*entry),
								 sizeof(entries)) / sizeof(*entry));
		if (i >= count || entry->d_tag == DT_NULL)
			break;
		if (entry->d_tag == DT_SYMTAB)
			s->symbols = address_of(s, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_STRTAB)
			s->strings = address_of(s, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_GNU_HASH)
			hash = address_of(s, entry->d_un.d_ptr);
	}
	if (!s->symbols || !s->strings || !hash || !read_at(hash, head, sizeof(head)) ||
	    !head[0] || !head[2])
		return false;
	s->bucket_count = head[0];
	s->first = head[1];
	s->bloom_words = head[2];
	s->bloom_shift = head[3];
	s->bloom = hash + sizeof(head);
	s->buckets = s->bloom + (uintptr_t)s->bloom_words * sizeof(ElfW(Addr));
	s->chains = s->buckets + (uintptr_t)s->bucket_count * 4;
	return true;
}

static bool may_have(const struct gm_symbols *s, uint32_t hash)
{
	const unsigned int bits = 8 * sizeof(ElfW(Addr));
	uintptr_t at = s->bloom + (uintptr_t)(hash / bits % s->bloom_words) * sizeof(ElfW(Addr));
	ElfW(Addr) word, mask;

	mask = (ElfW(Addr))1 << hash % bits | (ElfW(Addr))1 << (hash >> s->bloom_shift % 32) % bits;
	return read_at(at, &word, sizeof(word)) && (word & mask) == mask;
}

static uintptr_t symbol_at(const struct gm_symbols *s, uint32_t index, const char *name,
			   size_t *ret_bytes)
{
	char text[NAME_MAX_BYTES];
	size_t bytes = strlen(name) + 1;
	ElfW(Sym) symbol;
	uintptr_t address;

	if (bytes > sizeof(text) ||
	    !read_at(s->symbols + (uintptr_t)index * sizeof(symbol), &symbol, sizeof(symbol)) ||
	    symbol.st_shndx == SHN_UNDEF || !read_at(s->strings + symbol.st_name, text, bytes) ||
	    memcmp(text, name, bytes) != 0)
		return 0;
	address = s->base + symbol.st_value;
	if (address < s->start || address >= s->end || symbol.st_size > s->end - address)
		return 0;
	if (ret_bytes)
		*ret_bytes = symbol.st_size;
	return address;
}

uintptr_t gm_symbols_find(const struct gm_symbols *s, const char *name, size_t *ret_bytes)
{
	uint32_t hash = hash_gnu(name), index, link;

	if (!may_have(s, hash) ||
	    !read_at(s->buckets + (uintptr_t)(hash % s->bucket_count) * 4, &index, 4) ||
	    index < s->first)
		return 0;
	for (unsigned int i = 0; i < CHAIN_MAX; i++, index++) {
		uintptr_t found;

		if (!read_at(s->chains + (uintptr_t)(index - s->first) * 4, &link, 4))
			return 0;
		found = (link | 1) == (hash | 1) ? symbol_at(s, index, name, ret_bytes) : 0;
		if (found)
			return found;
		if (link & 1)
			return 0;
	}
	return 0;
}
