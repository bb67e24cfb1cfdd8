/*
 * next_symbol.h - the function that a caller would have got if this library did not define one of
 * that name.
 *
 * dlsym(RTLD_NEXT) does not see what was loaded RTLD_LOCAL, as Python loads everything; and dlopen
 * takes the loader's lock, which another thread may hold while it waits for a lock of our caller's.
 * So the list of loaded objects and their tables are read as they lie in memory
 * (recorder/modules/object_symbol.h).
 *
 * Thread context: any. Signal context: allowed. No lock, no malloc, errno kept.
 */
#ifndef GM_PRELOAD_NEXT_SYMBOL_H
#define GM_PRELOAD_NEXT_SYMBOL_H

#include <stdint.h>

#include "recorder/modules/object.h"

/* The function @name for code at @caller, from an object in the caller's name space that is not this
 * library. Of several, one from an object that the caller's object needs (DT_NEEDED); of several such,
 * one in the same directory, where libraries of one package are; else one that was loaded later. The
 * caller's own comes first; an interposer that was preloaded before this library gets what comes behind it.
 * Returns its address and @ret_object; 0 where no object defines it. */
uintptr_t gm_next_symbol(uintptr_t caller, const char *name, struct gm_object *ret_object);

/* Does the loaded object that is called @file (the last part of its path, up to the first ".so") lack
 * @name? False where no such object is loaded. */
bool gm_object_lacks(const char *file, const char *name);

#endif
