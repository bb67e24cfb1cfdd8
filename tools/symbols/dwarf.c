/*
 * dwarf.c - find the functions and lines of addresses in DWARF: see symbols.h. One thread.
 *
 * The unit of an address is found by the units' own ranges, because the index for that (.debug_aranges) is often
 * missing. Units without a requested address are not read.
 *
 * One walk over a unit serves all its addresses. The walk skips a function without a requested address, and all that is
 * in it; in other functions it goes down into inlined functions. If addresses are left without a function, a second
 * walk goes into everything and finds functions within functions, such as lambdas.
 */
#define _GNU_SOURCE
#include "tools/symbols/symbols.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"

#if __has_include(<elfutils/libdw.h>) && __has_include(<elfutils/libdwelf.h>)
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>

#define GM_LIBDW_FUNCTIONS(X) \
	X(dwarf_begin) X(dwarf_end) X(dwarf_get_units) X(dwarf_ranges) X(dwarf_getsrc_die) \
	X(dwarf_linesrc) X(dwarf_lineno) X(dwarf_getsrcfiles) X(dwarf_filesrc) X(dwarf_child) \
	X(dwarf_siblingof) X(dwarf_tag) X(dwarf_attr_integrate) X(dwarf_attr) X(dwarf_formudata) \
	X(dwarf_formstring) X(dwarf_diename) X(dwarf_setalt) X(dwelf_dwarf_gnu_debugaltlink)

/* libdw's functions, from dlsym. */
static struct {
#define GM_LIBDW_FIELD(name) __typeof__(&name) name;
	GM_LIBDW_FUNCTIONS(GM_LIBDW_FIELD)
#undef GM_LIBDW_FIELD
} gm_libdw;

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

/* ---- the functions of one unit --------------------------------------------------------------- */

#define DEPTH_MOST 256u			/* of nested entries; deeper ones are damaged */

/* One compilation unit and the addresses in it. */
struct unit {
	Dwarf_Die die;
	const uint64_t *addresses;	/* ascending */
	const size_t *places;		/* their indices in the request */
	size_t count;
};

struct node {				/* a function at an address; @outer: the node of the outer one, 0: none */
	Dwarf_Die die;
	uint32_t outer;
};

struct walk {
	const struct unit *unit;
	uint32_t *innermost;		/* by address: the node of its innermost function so far, 0: none */
	struct node *nodes;		/* the first is unused */
	size_t node_count;
	size_t found;			/* addresses with a function */
	bool deep;			/* the second walk: go into everything */
	bool no_memory;
};

/* Return the index of the first of the ascending @addresses that is >= @address; @count: none. */
static size_t first_at_or_after(const uint64_t *addresses, size_t count, uint64_t address)
{
	size_t low = 0;

	while (low < count) {
		size_t middle = low + (count - low) / 2;

		if (addresses[middle] < address)
			low = middle + 1;
		else
			count = middle;
	}
	return low;
}

static uint32_t new_node(struct walk *walk, const Dwarf_Die *die, uint32_t outer)
{
	struct node *node = walk->node_count < UINT32_MAX ?
		gm_list_add(&walk->nodes, &walk->node_count, sizeof(*node)) : NULL;

	if (!node) {
		walk->no_memory = true;
		return 0;
	}
	*node = (struct node){ *die, outer };
	return (uint32_t)(walk->node_count - 1);
}

/* Make the function @die the innermost one of every address in its ranges: a function where an address has none, an
 * inlined one where it has one. Return whether there was any. */
static bool hold(struct walk *walk, Dwarf_Die *die, bool inlined)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t offset = 0;
	bool any = false;

	while ((offset = gm_libdw.dwarf_ranges(die, offset, &base, &low, &high)) > 0) {
		size_t i = first_at_or_after(walk->unit->addresses, walk->unit->count, low);

		for (; i < walk->unit->count && walk->unit->addresses[i] < high; i++) {
			uint32_t outer = walk->innermost[i], node;

			if (inlined != (outer != 0))
				continue;	/* met again in the second walk, or damaged */
			node = new_node(walk, die, outer);
			if (!node)
				return false;
			walk->innermost[i] = node;
			walk->found += !inlined;
			any = true;
		}
	}
	return any;
}

static void visit_children(struct walk *walk, Dwarf_Die *parent, bool in_function,
			   unsigned int depth);

static void visit(struct walk *walk, Dwarf_Die *die, bool in_function, unsigned int depth)
{
	switch (gm_libdw.dwarf_tag(die)) {
	case DW_TAG_subprogram:
		if (hold(walk, die, false))
			visit_children(walk, die, true, depth);
		else if (walk->deep)
			visit_children(walk, die, false, depth);
		break;
	case DW_TAG_inlined_subroutine:
		if (in_function && hold(walk, die, true))
			visit_children(walk, die, true, depth);
		else if (walk->deep)
			visit_children(walk, die, false, depth);
		break;
	case DW_TAG_lexical_block:
	case DW_TAG_try_block:
	case DW_TAG_catch_block:
		if (in_function || walk->deep)
			visit_children(walk, die, in_function, depth);
		break;
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		if (!in_function || walk->deep)
			visit_children(walk, die, false, depth);
		break;
	default:
		break;
	}
}

static void visit_children(struct walk *walk, Dwarf_Die *parent, bool in_function,
			   unsigned int depth)
{
	Dwarf_Die die, next;

	if (depth >= DEPTH_MOST || gm_libdw.dwarf_child(parent, &die))
		return;
	do {
		visit(walk, &die, in_function, depth + 1);
		if (walk->no_memory || (!in_function && walk->found == walk->unit->count))
			return;
	} while (!gm_libdw.dwarf_siblingof(&die, &next) && (die = next, true));
}

/* Return the value of an attribute, or @otherwise if @die lacks it. */
static uint64_t number(Dwarf_Die *die, unsigned int name, uint64_t otherwise)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	if (!gm_libdw.dwarf_attr(die, name, &attribute) ||
	    gm_libdw.dwarf_formudata(&attribute, &value))
		return otherwise;
	return value;
}

/* Return the function's linkage name, else its plain name, else "". */
static const char *symbol_of(Dwarf_Die *die)
{
	static const unsigned int names[] = { DW_AT_linkage_name, DW_AT_MIPS_linkage_name };
	Dwarf_Attribute attribute;
	const char *name;

	for (unsigned int i = 0; i < 2; i++)
		if (gm_libdw.dwarf_attr_integrate(die, names[i], &attribute) &&
		    (name = gm_libdw.dwarf_formstring(&attribute)))
			return name;
	name = gm_libdw.dwarf_diename(die);
	return name ? name : "";
}

/* Return the name of the unit's file number @file, or "". File 0 exists since DWARF 5; before, libdw calls it "???". */
static const char *file_of(const struct unit *unit, uint64_t file)
{
	Dwarf_Die die = unit->die;
	Dwarf_Files *files;
	const char *name;
	size_t count;

	if (gm_libdw.dwarf_getsrcfiles(&die, &files, &count) || file >= count)
		return "";
	name = gm_libdw.dwarf_filesrc(files, (size_t)file, NULL, NULL);
	return name && strcmp(name, "???") ? name : "";
}

/* Report the levels of address @i. The innermost has the line of the address, each outer one the line of the call that
 * was inlined. */
static void report(struct walk *walk, size_t i, const struct gm_dwarf_request *request)
{
	const struct unit *unit = walk->unit;
	Dwarf_Die die = unit->die;
	Dwarf_Line *line = gm_libdw.dwarf_getsrc_die(&die, unit->addresses[i]);
	struct gm_level levels[GM_LEVELS_MOST], at = { "", "", 0, false };
	const char *text = line ? gm_libdw.dwarf_linesrc(line, NULL, NULL) : NULL;
	size_t count = 0;
	int row = 0;

	if (text)
		at.file = text;
	if (line && !gm_libdw.dwarf_lineno(line, &row) && row > 0)
		at.line = (uint32_t)row;
	for (uint32_t n = walk->innermost[i]; n; n = walk->nodes[n].outer) {
		struct node *node = &walk->nodes[n];

		at.name = symbol_of(&node->die);
		at.inlined = node->outer != 0;
		/* Without inlines only the outermost function is left, at the line of the call. */
		if (!request->inlines || count == GM_LEVELS_MOST)
			count = 0;
		levels[count++] = at;
		if (at.inlined) {
			at.file = file_of(unit, number(&node->die, DW_AT_call_file, UINT64_MAX));
			at.line = (uint32_t)number(&node->die, DW_AT_call_line, 0);
		}
	}
	if (!count && (at.line || at.file[0]))
		levels[count++] = at;
	if (count)
		request->found(request->arg, unit->places[i], levels, count);
}

/* Report the levels of each address of one unit. Return false if out of memory. */
static bool resolve_unit(const struct unit *unit, const struct gm_dwarf_request *request)
{
	struct walk walk = { .unit = unit };
	Dwarf_Die die = unit->die;

	walk.innermost = calloc(unit->count, sizeof(*walk.innermost));
	new_node(&walk, &die, 0);
	walk.no_memory |= !walk.innermost;
	if (!walk.no_memory)
		visit_children(&walk, &die, false, 0);
	if (!walk.no_memory && walk.found < unit->count) {
		walk.deep = true;
		visit_children(&walk, &die, false, 0);
	}
	for (size_t i = 0; !walk.no_memory && i < unit->count; i++)
		report(&walk, i, request);
	free(walk.innermost);
	free(walk.nodes);
	return !walk.no_memory;
}

/* ---- units ------------------------------------------------------------------------------------ */

static int by_index(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	return x < y ? -1 : x > y;
}

/* Write to @places the indices of the request's addresses in @unit, ascending. Return their number. */
static size_t find_addresses(Dwarf_Die *unit, const struct gm_dwarf_request *request, size_t *places)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t offset = 0;
	size_t count = 0;

	while ((offset = gm_libdw.dwarf_ranges(unit, offset, &base, &low, &high)) > 0) {
		if (low <= 1)		/* code that the linker removed */
			continue;
		for (size_t i = first_at_or_after(request->addresses, request->count, low);
		     i < request->count && request->addresses[i] < high && count < request->count; i++)
			places[count++] = i;
	}
	if (count)
		qsort(places, count, sizeof(*places), by_index);
	return count;
}

/* Answer the request unit by unit. Return NULL, or why it failed. */
static const char *find_units(Dwarf *dwarf, const struct gm_dwarf_request *request)
{
	uint64_t *addresses = malloc(request->count * sizeof(*addresses));
	size_t *places = malloc(request->count * sizeof(*places));
	const char *why = addresses && places ? NULL : "out of memory";
	struct unit unit = { .addresses = addresses, .places = places };
	Dwarf_CU *cu = NULL;
	Dwarf_Half version;
	uint8_t type;

	/* The last argument is NULL, or libdw would open the split file that this file names. */
	while (!why && !gm_libdw.dwarf_get_units(dwarf, cu, &cu, &version, &type, &unit.die, NULL)) {
		if (type != DW_UT_compile && type != DW_UT_skeleton)
			continue;
		unit.count = find_addresses(&unit.die, request, places);
		for (size_t i = 0; i < unit.count; i++)
			addresses[i] = request->addresses[places[i]];
		if (unit.count && !resolve_unit(&unit, request))
			why = "out of memory";
	}
	free(addresses);
	free(places);
	return why;
}

/* Open the file with the parts that several debug files share (dwz), if this file refers to one: by the name in this
 * file, relative to this file's directory, else by build id. It must have the build id that this file names. Return
 * NULL, or why it failed; the caller closes *@ret_common and @ret_file. */
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
	return "libdw was not there when this gpumem was built (Debian: libdw-dev)";
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
