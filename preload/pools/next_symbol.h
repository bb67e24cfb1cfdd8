/*
 * next_symbol.h - find the function that a caller would have called if this library did not define that name.
 *
 * Reads the loader's list of objects and their symbol tables directly from memory (recorder/modules/object_symbol.h),
 * for two reasons:
 *   - dlsym(RTLD_NEXT) does not see objects that were loaded RTLD_LOCAL, and Python loads all objects that way;
 *   - dlopen takes the loader's lock, and a thread that holds it may be waiting for a lock of our caller.
 *
 * Thread context: any. Signal context: allowed. No lock, no malloc, errno kept.
 */
#ifndef GM_PRELOAD_NEXT_SYMBOL_H
#define GM_PRELOAD_NEXT_SYMBOL_H

#include <stdint.h>

#include "recorder/modules/object.h"

/* Find the function @name for code at @caller. Searches the objects of the caller's link-map name space, except this
 * library. If several objects define @name, the order of preference is:
 *   1. the caller's own object, unless that is an interposer preloaded before this library: such an interposer gets
 *      only definitions behind this library;
 *   2. an object that the caller's object needs (DT_NEEDED);
 *   3. an object in the caller's directory, because that is where the libraries of one package lie;
 *   4. an object that was loaded after the caller's.
 * Returns the function's address and the object that defines it; 0: no object does. */
uintptr_t gm_next_symbol(uintptr_t caller, const char *name, struct gm_object *ret_object);

/* Is an object @file loaded that does not define @name? @file is the last part of its path, without ".so" and what
 * follows that. */
bool gm_object_lacks(const char *file, const char *name);

#endif
