/*
 * next_symbol.h - the function that a caller would have got if we did not define one of its name.
 *
 * dlsym(RTLD_NEXT) does not see what was loaded RTLD_LOCAL, as Python loads everything; and dlopen takes
 * the loader's lock, which another thread may hold while it waits for a lock of our caller's. So the list
 * of loaded objects and their tables are read as they lie in memory (recorder/modules/object_symbol.h).
 *
 * Thread context: any. Signal context: allowed. No lock, no malloc, errno kept.
 */
#ifndef GM_PRELOAD_NEXT_SYMBOL_H
#define GM_PRELOAD_NEXT_SYMBOL_H

#include <stdint.h>

#include "recorder/modules/object.h"

/* The function @name for code at @caller, of an object in the caller's name space, never of ours. Of
 * several the one of an object that the caller's names as needed; of several of those the one in its
 * directory, as libraries that came together are; else one that was loaded after it. Returns its address
 * and @ret_object, 0 where nobody has it. */
uintptr_t gm_next_symbol(uintptr_t caller, const char *name, struct gm_object *ret_object);

/* Does the loaded object that is called @file (the last part of its path, up to the first ".so") lack
 * @name? False where no such object is loaded. */
bool gm_object_lacks(const char *file, const char *name);

#endif
