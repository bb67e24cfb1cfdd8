/*
 * places.h - where the library puts journals by itself, as the tools look for them.
 */
#ifndef GM_TOOLS_PLACES_H
#define GM_TOOLS_PLACES_H

/* Call @visit for every *.journal of this user in the automatic places and in GPUMEM_JOURNAL. */
void gm_places_each(void (*visit)(void *arg, const char *path), void *arg);

#endif
