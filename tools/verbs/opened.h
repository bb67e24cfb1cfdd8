/*
 * opened.h - the inputs of a verb, loaded, with their stacks, lives and groups. Single-threaded.
 */
#ifndef GM_TOOLS_OPENED_H
#define GM_TOOLS_OPENED_H

#include "tools/read/level.h"
#include "tools/read/load.h"
#include "tools/show/groups.h"

/* Is @device (a number) in the snapshot? "host" and NULL (all devices) always are. A verb must not say that nothing is
 * live on a device that the snapshot does not have. */
bool gm_device_is_in(const json_t *root, const char *device);

/* Refuse the input @word if @device is not in it (gm_device_is_in). Returns 0, or the exit status after a message. */
int gm_device_check(const char *verb, const char *device, const char *word, const json_t *root);

/* Load the input @word, which must have @device, at the level @level, and open its scene. Returns 0, or the exit status
 * after a message and nothing to close. */
struct gm_opened { struct gm_loaded loaded; struct gm_scene scene; };
int gm_open(const char *verb, const char *word, const char *device, enum gm_pool_level level, struct gm_opened *ret);

/* Open the part @cut of the input (write/convert.h) in the same way; @cut->device is the device. */
struct gm_cut;
int gm_open_part(const char *verb, const char *word, const struct gm_cut *cut, enum gm_pool_level level,
		 struct gm_opened *ret);
void gm_opened_close(struct gm_opened *opened);

/* Group what is live in one input, or in an earlier and a later input (@count 2), and sort the groups. One input alone
 * is all growth. @device and @known are as in gm_groups_add. Returns 0, or the exit status after a message and nothing
 * to close. */
struct gm_compared { struct gm_opened inputs[2]; struct gm_groups groups; };
int gm_compare(const char *verb, char **words, int count, const char *device, enum gm_pool_level level,
	       struct gm_suppressions *known, enum gm_by by, struct gm_compared *ret);
void gm_compared_close(struct gm_compared *compared);

#endif
