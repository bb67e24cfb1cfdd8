/*
 * libdw.h - the functions of elfutils' libdw that are used, by pointers that dlopen found.
 */
#ifndef GM_TOOLS_LIBDW_H
#define GM_TOOLS_LIBDW_H

#if __has_include(<elfutils/libdw.h>) && __has_include(<elfutils/libdwelf.h>)
#define GM_HAVE_LIBDW 1
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>

#define GM_LIBDW_FUNCTIONS(X) \
	X(dwarf_begin) X(dwarf_end) X(dwarf_errmsg) X(dwarf_get_units) X(dwarf_ranges) \
	X(dwarf_getsrclines) X(dwarf_getsrc_die) X(dwarf_linesrc) X(dwarf_lineno) \
	X(dwarf_getsrcfiles) X(dwarf_filesrc) X(dwarf_child) X(dwarf_siblingof) X(dwarf_tag) \
	X(dwarf_attr_integrate) X(dwarf_attr) X(dwarf_formudata) X(dwarf_formstring) \
	X(dwarf_diename) X(dwarf_setalt) X(dwelf_dwarf_gnu_debugaltlink)

struct gm_libdw {
#define GM_LIBDW_FIELD(name) __typeof__(&name) name;
	GM_LIBDW_FUNCTIONS(GM_LIBDW_FIELD)
#undef GM_LIBDW_FIELD
};

extern struct gm_libdw gm_libdw;	/* filled by gm_dwarf_missing */

/* One compilation unit and the addresses in it. */
struct gm_unit_request {
	Dwarf_Die unit;
	const uint64_t *addresses;	/* ascending */
	const size_t *places;		/* theirs in the request */
	size_t count;
};

/* The place of the first of @addresses, ascending, that is not below @address. */
size_t gm_first_at_or_after(const uint64_t *addresses, size_t count, uint64_t address);

struct gm_dwarf_request;
/* dwarf_walk.c: report the levels at each address of one unit. Returns false without memory. */
bool gm_dwarf_unit(const struct gm_unit_request *unit, const struct gm_dwarf_request *request);
#endif

#endif
