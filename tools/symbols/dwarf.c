/*
 * dwarf.c - from addresses to compilation units: see dwarf.h.
 *
 * Which unit an address lies in is taken from the units' own ranges: the index that a compiler may
 * write (.debug_aranges) is missing as often as not. Units without an address that is asked for are not read.
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

static int by_index(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	return x < y ? -1 : x > y;
}

/* Which addresses of the request lie in @unit: their places, ascending. */
static size_t find_addresses(Dwarf_Die *unit, const struct gm_dwarf_request *request, size_t *places)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t offset = 0;
	size_t count = 0;

	while ((offset = gm_libdw.dwarf_ranges(unit, offset, &base, &low, &high)) > 0) {
		if (low <= 1)		/* code that the linker threw away */
			continue;
		for (size_t i = gm_first_at_or_after(request->addresses, request->count, low);
		     i < request->count && request->addresses[i] < high && count < request->count; i++)
			places[count++] = i;
	}
	if (count)
		qsort(places, count, sizeof(*places), by_index);
	return count;
}

/* Answer the request unit by unit. Returns NULL, or why it could not. */
static const char *find_units(Dwarf *dwarf, const struct gm_dwarf_request *request)
{
	uint64_t *addresses = malloc(request->count * sizeof(*addresses));
	size_t *places = malloc(request->count * sizeof(*places));
	const char *why = addresses && places ? NULL : "out of memory";
	struct gm_unit_request unit = { .addresses = addresses, .places = places };
	Dwarf_CU *cu = NULL;
	Dwarf_Half version;
	uint8_t type;

	/* No place for the split part: libdw would open the file that this one names. */
	while (!why && !gm_libdw.dwarf_get_units(dwarf, cu, &cu, &version, &type, &unit.unit, NULL)) {
		if (type != DW_UT_compile && type != DW_UT_skeleton)
			continue;
		unit.count = find_addresses(&unit.unit, request, places);
		for (size_t i = 0; i < unit.count; i++)
			addresses[i] = request->addresses[places[i]];
		if (unit.count && !gm_dwarf_unit(&unit, request))
			why = "out of memory";
	}
	free(addresses);
	free(places);
	return why;
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
		why = find_units(dwarf, request);
	gm_libdw.dwarf_end(dwarf);
	if (common)
		gm_libdw.dwarf_end(common);
	gm_debug_file_close(&common_file);
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
