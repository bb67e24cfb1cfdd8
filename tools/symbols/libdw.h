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
#endif

#endif
