/*
 * dwarf.c - from addresses to compilation units: see dwarf.h.
 *
 * Which unit an address lies in is taken from the units' own ranges: the index that a compiler may
 * write (.debug_aranges) is missing as often as not. Units nobody asks about are never read.
 */
#define _GNU_SOURCE
#include "tools/symbols/dwarf.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/symbols/libdw.h"

#ifdef GM_HAVE_LIBDW

struct gm_libdw gm_libdw;

#define RANGES_MOST (64u << 20)		/* of all units of a file */
#define OVERLAPS 16u			/* ranges that are looked at before one is believed missing */

const char *gm_dwarf_missing(void)
{
	static void *library;

	if (library)
		return NULL;
	library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return "libdw.so.1 is not installed (Debian: libdw1)";
#define FIND(name) \
	*(void **)&gm_libdw.name = dlsym(library, #name); \
	if (!gm_libdw.name) \
		return library = NULL, "libdw.so.1 is too old: it has no " #name;
	GM_LIBDW_FUNCTIONS(FIND)
#undef FIND
	return NULL;
}

struct range { uint64_t low, high; uint32_t unit; };
struct place { uint32_t unit; size_t index; };

struct ranges {
	struct range *at;
	size_t count, room;
	Dwarf_Die *units;
	size_t unit_count, unit_room;
};

static bool grow(void **at, size_t *room, size_t count, size_t size)
{
	size_t larger = *room ? *room * 2 : 256;
	void *new;

	if (count < *room)
		return true;
	new = larger <= RANGES_MOST ? realloc(*at, larger * size) : NULL;
	if (!new)
		return false;
	*at = new;
	*room = larger;
	return true;
}

static bool add_unit(struct ranges *ranges, Dwarf_Die *unit)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t offset = 0;
	bool any = false;

	while ((offset = gm_libdw.dwarf_ranges(unit, offset, &base, &low, &high)) > 0) {
		if (low >= high)
			continue;
		if (!grow((void **)&ranges->at, &ranges->room, ranges->count,
			  sizeof(*ranges->at)))
			return false;
		ranges->at[ranges->count++] = (struct range){ low, high,
							      (uint32_t)ranges->unit_count };
		any = true;
	}
	if (!any)
		return true;
	if (!grow((void **)&ranges->units, &ranges->unit_room, ranges->unit_count,
		  sizeof(*ranges->units)))
		return false;
	ranges->units[ranges->unit_count++] = *unit;
	return true;
}

static int by_low(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->low < y->low ? -1 : x->low > y->low;
}

static const char *read_units(Dwarf *dwarf, struct ranges *ranges)
{
	Dwarf_CU *cu = NULL;
	Dwarf_Half version;
	uint8_t type;
	Dwarf_Die unit;

	/* No place for the split part: libdw would open the file that this one names. */
	while (!gm_libdw.dwarf_get_units(dwarf, cu, &cu, &version, &type, &unit, NULL))
		if ((type == DW_UT_compile || type == DW_UT_skeleton) && !add_unit(ranges, &unit))
			return "too many units, or not enough memory";
	if (ranges->count)
		qsort(ranges->at, ranges->count, sizeof(*ranges->at), by_low);
	return ranges->count ? NULL : "no compilation unit says where its code lies";
}

static bool find_unit(const struct ranges *ranges, uint64_t address, uint32_t *ret_unit)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranges->at[middle].low <= address)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t back = 0; back < OVERLAPS && back < low; back++) {
		const struct range *range = &ranges->at[low - 1 - back];

		if (address < range->high) {
			*ret_unit = range->unit;
			return true;
		}
	}
	return false;
}

static int by_unit(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static bool tell_units(const struct ranges *ranges, const struct gm_dwarf_request *request)
{
	struct place *places = malloc(request->count * sizeof(*places));
	uint64_t *addresses = malloc(request->count * sizeof(*addresses));
	size_t *indices = malloc(request->count * sizeof(*indices));
	bool fine = places && addresses && indices;
	size_t count = 0, end;

	for (size_t i = 0; fine && i < request->count; i++) {
		places[count].index = i;
		count += find_unit(ranges, request->addresses[i], &places[count].unit);
	}
	if (fine && count)
		qsort(places, count, sizeof(*places), by_unit);
	for (size_t i = 0; fine && i < count; i++) {
		indices[i] = places[i].index;
		addresses[i] = request->addresses[indices[i]];
	}
	for (size_t i = 0; fine && i < count; i = end) {
		struct gm_unit_request unit = { .unit = ranges->units[places[i].unit],
						.addresses = addresses + i,
						.indices = indices + i };

		for (end = i; end < count && places[end].unit == places[i].unit;)
			end++;
		unit.count = end - i;
		fine = gm_dwarf_unit(&unit, request);
	}
	free(places);
	free(addresses);
	free(indices);
	return fine;
}

/* What several debug files have in common may lie in another file (dwz): the one that this file
 * names, relative to itself, or one by build id; only if it has the build id that is asked for. */
static const char *open_common(const struct gm_debug_places *places,
			       const struct gm_debug_file *file, Dwarf *dwarf,
			       struct gm_debug_file *ret_file, Dwarf **ret_common)
{
	const char *name, *slash = strrchr(file->path, '/');
	struct gm_build_id id = { .count = 0 };
	struct gm_debug_files found;
	const void *bytes;
	ssize_t length = gm_libdw.dwelf_dwarf_gnu_debugaltlink(dwarf, &name, &bytes);
	char path[sizeof(file->path)];

	ret_file->elf.fd = -1;
	if (length <= 0)
		return NULL;
	if ((size_t)length > sizeof(id.bytes))
		return "it refers to a common debug file by an odd build id";
	memcpy(id.bytes, bytes, (size_t)length);
	id.count = (unsigned int)length;
	snprintf(path, sizeof(path), "%.*s%s", name[0] == '/' || !slash ? 0 :
		 (int)(slash - file->path) + 1, file->path, name);
	if (gm_debug_file_open(path, &id, ret_file)) {
		gm_debug_files_find(places, "", &id, &found);
		gm_debug_file_close(&found.symbols);
		*ret_file = found.dwarf;
	}
	if (ret_file->elf.fd >= 0)
		*ret_common = gm_libdw.dwarf_begin(ret_file->elf.fd, DWARF_C_READ);
	if (!*ret_common)
		return "the common debug file that it refers to is not here";
	gm_libdw.dwarf_setalt(dwarf, *ret_common);
	return NULL;
}

const char *gm_dwarf_resolve(const struct gm_debug_places *places,
			     const struct gm_debug_file *file,
			     const struct gm_dwarf_request *request)
{
	struct ranges ranges = { 0 };
	struct gm_debug_file common_file;
	Dwarf *dwarf, *common = NULL;
	const char *why = gm_dwarf_missing();

	if (why)
		return why;
	dwarf = gm_libdw.dwarf_begin(file->elf.fd, DWARF_C_READ);
	if (!dwarf)
		return "its debug information cannot be read";
	why = open_common(places, file, dwarf, &common_file, &common);
	if (!why)
		why = read_units(dwarf, &ranges);
	if (!why && !tell_units(&ranges, request))
		why = "out of memory";
	gm_libdw.dwarf_end(dwarf);
	if (common)
		gm_libdw.dwarf_end(common);
	gm_debug_file_close(&common_file);
	free(ranges.at);
	free(ranges.units);
	return why;
}

#else

const char *gm_dwarf_missing(void)
{
	return "this gpumem was built without libdw (Debian: libdw-dev)";
}

const char *gm_dwarf_resolve(const struct gm_debug_places *places,
			     const struct gm_debug_file *file,
			     const struct gm_dwarf_request *request)
{
	(void)places;
	(void)file;
	(void)request;
	return gm_dwarf_missing();
}

#endif
