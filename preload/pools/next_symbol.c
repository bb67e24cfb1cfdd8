/*
 * next_symbol.c - find the next definition of a function: see next_symbol.h.
 */
#define _GNU_SOURCE
#include "preload/pools/next_symbol.h"

#include <link.h>
#include <string.h>

#include "preload/process/state.h"
#include "recorder/journal/probe.h"
#include "recorder/modules/object_symbol.h"

#define OBJECTS_MOST 8192		/* read no more: the list may change meanwhile, so its end may not come */
#define PATH_MOST 1024
#define NAME_MOST 256
#define DYNAMIC_MOST 512

extern const char __ehdr_start[] GM_HIDDEN;

struct path { char text[PATH_MOST]; size_t directory; };	/* @directory: its length, with the last slash */

static bool read_map(uintptr_t at, struct link_map *ret)
{
	return at && gm_probe_copy(ret, at, sizeof(*ret)) == sizeof(*ret);
}

static void read_path(const struct link_map *map, struct path *ret)
{
	size_t length = gm_probe_copy(ret->text, (uintptr_t)map->l_name, sizeof(ret->text) - 1);
	const char *slash;

	ret->text[length] = '\0';
	slash = strrchr(ret->text, '/');
	ret->directory = slash ? (size_t)(slash - ret->text) + 1 : 0;
}

/* Return the first link map in the name space of the link map at @at; 0: in the program's own name space. */
static uintptr_t first_map(uintptr_t at)
{
	struct link_map map;

	if (!at)
		return (uintptr_t)_r_debug.r_map;
	for (unsigned int i = 0; i < OBJECTS_MOST && read_map(at, &map) && map.l_prev; i++)
		at = (uintptr_t)map.l_prev;
	return at;
}

static bool is_ours(const struct gm_object *object)
{
	return object->start == (uintptr_t)__ehdr_start;
}

/* Return the address of @name if the object of @map defines it and is not this library; else 0. *@ret_object: the
 * object, also without the function. */
static uintptr_t find_in(const struct link_map *map, const char *name, struct gm_object *ret_object)
{
	struct gm_symbols symbols;

	if (!gm_object_find((uintptr_t)map->l_ld, ret_object) || is_ours(ret_object) ||
	    !gm_symbols_open(&symbols, ret_object))
		return 0;
	return gm_symbols_find(&symbols, name, NULL);
}

/* Does the object of @map need the file @file (DT_NEEDED)? The first pass finds the string table. */
static bool needs(const struct link_map *map, const char *file)
{
	char text[NAME_MOST];
	uintptr_t strings = 0;
	size_t length = strlen(file) + 1;
	ElfW(Dyn) entry;

	for (unsigned int pass = 0; pass < 2; pass++) {
		for (unsigned int i = 0; i < DYNAMIC_MOST; i++) {
			uintptr_t at = (uintptr_t)map->l_ld + i * sizeof(entry);

			if (gm_probe_copy(&entry, at, sizeof(entry)) != sizeof(entry) ||
			    entry.d_tag == DT_NULL)
				break;
			if (entry.d_tag == DT_STRTAB)
				strings = entry.d_un.d_ptr;
			else if (pass && entry.d_tag == DT_NEEDED && length <= sizeof(text) &&
				 gm_probe_copy(text, strings + entry.d_un.d_val, length) == length &&
				 !memcmp(text, file, length))
				return true;
		}
	}
	return false;
}

/* Bits that rank an object with the function: the largest sum wins; 0: the object lacks the function. If the caller's
 * own object has the function and precedes this library in the list, the caller found us by RTLD_NEXT: drop the
 * caller's object and all others before this library. */
enum { HAS_IT = 1, LOADED_LATER = 2, NEIGHBOUR = 4, NEEDED = 8, ITSELF = 16 };

uintptr_t gm_next_symbol(uintptr_t caller, const char *name, struct gm_object *ret_object)
{
	struct gm_object of = { 0 }, object = { 0 };
	struct path own = { "", 0 }, path;
	struct link_map map, own_map;
	uintptr_t found = 0, at;
	unsigned int best = 0;
	bool later = false, known;

	gm_object_find(caller, &of);
	known = read_map(of.link_map, &own_map);
	if (known)
		read_path(&own_map, &own);
	at = first_map(of.link_map);
	for (unsigned int i = 0; i < OBJECTS_MOST && read_map(at, &map); i++) {
		uintptr_t address = find_in(&map, name, &object);
		unsigned int rank = address ? HAS_IT : 0;

		if (address) {
			read_path(&map, &path);
			rank |= later ? LOADED_LATER : 0;
			if (own.directory && own.directory == path.directory &&
			    !memcmp(own.text, path.text, own.directory))
				rank |= NEIGHBOUR;
			if (known && needs(&own_map, path.text + path.directory))
				rank |= NEEDED;
			if (object.start == of.start)
				rank |= ITSELF;
		}
		if (best & ITSELF && is_ours(&object)) {
			best = 0;
			found = 0;
		}
		if (rank > best) {
			best = rank;
			found = address;
			*ret_object = object;
		}
		later = later || (of.link_map && at == of.link_map);
		at = (uintptr_t)map.l_next;
	}
	return found;
}

bool gm_object_lacks(const char *file, const char *name)
{
	uintptr_t at = first_map(0);
	struct gm_object object;
	struct link_map map;
	struct path path;

	for (unsigned int i = 0; i < OBJECTS_MOST && read_map(at, &map); i++) {
		size_t length = strlen(file);

		read_path(&map, &path);
		if (!strncmp(path.text + path.directory, file, length) &&
		    !strncmp(path.text + path.directory + length, ".so", 3))
			return !find_in(&map, name, &object);
		at = (uintptr_t)map.l_next;
	}
	return false;
}
