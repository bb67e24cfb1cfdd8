/*
 * opened.h - the inputs of a verb: loaded, and all that is needed to look into them.
 */
#ifndef GM_TOOLS_OPENED_H
#define GM_TOOLS_OPENED_H

#include "tools/read/level.h"
#include "tools/read/load.h"
#include "tools/show/groups.h"

/* Is @device (a number, "host", NULL for all) in that snapshot? To say that nothing is live on a device that is not
 * there would be no answer. */
bool gm_device_is_in(const json_t *root, const char *device);

/* The same. Returns 0, or the exit status after a complaint of the input @word. */
int gm_device_check(const char *verb, const char *device, const char *word, const json_t *root);

/* Load the input @word, in which @device must be, with its memory at @level, and open its scene. Returns 0,
 * or the exit status of a complaint. */
struct gm_opened { struct gm_loaded loaded; struct gm_scene scene; };
int gm_open(const char *verb, const char *word, const char *device, enum gm_pool_level level, struct gm_opened *ret);

/* The same of the part @cut of it (write/convert.h), whose device must be in it. */
struct gm_cut;
int gm_open_part(const char *verb, const char *word, const struct gm_cut *cut, enum gm_pool_level level,
		 struct gm_opened *ret);
void gm_opened_close(struct gm_opened *opened);

/* What is live in @count inputs, one or an earlier and a later one, summed: @groups is sorted. One alone is all
 * growth. @device and @known as in gm_groups_add. Returns 0, or a complaint. */
struct gm_compared { struct gm_opened inputs[2]; struct gm_groups groups; };
int gm_compare(const char *verb, char **words, int count, const char *device, enum gm_pool_level level,
	       struct gm_suppressions *known, enum gm_by by, struct gm_compared *ret);
void gm_compared_close(struct gm_compared *compared);

#endif
