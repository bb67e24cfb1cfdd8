/*
 * demangle.h - symbols as the source has them: C++ and Rust names undone.
 *
 * Single-threaded, no signal context. Needs libiberty at build time; without it symbols stay as
 * they are.
 */
#ifndef GM_TOOLS_DEMANGLE_H
#define GM_TOOLS_DEMANGLE_H

/* @symbol demangled; @symbol itself when it is not mangled, longer than 8 KiB, or would come out
 * longer than 16 KiB. Static memory, valid until the next call. */
const char *gm_demangle(const char *symbol);

#endif
