/*
 * view.h - the page of `gpumem view`: one HTML file with the viewer and the snapshots that it shows.
 *
 * A snapshot is packed for it (the format: tools/viewer/README.md), compressed, and written into the page as
 * base64. Single-threaded.
 */
#ifndef GM_TOOLS_VIEW_H
#define GM_TOOLS_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/show/groups.h"

/* The page without snapshots, as tools/viewer/build.mjs makes it; NULL: this gpumem was built without. */
const char *gm_view_page(size_t *ret_bytes);

struct gm_pack { unsigned char *bytes; size_t count, room; int error; };

/* Pack a snapshot for the page, which calls it @name (need not be UTF-8); with its @pools as sources of their own, or
 * without. Returns 0 or -ENOMEM; @ret->bytes is freed by the caller, whatever is returned. */
int gm_view_pack(const struct gm_scene *scene, const char *name, bool pools, struct gm_pack *ret);

/* The page with @count packs. Returns 0, -ENOSYS (this gpumem was built without the page), -ENOMEM, -EOVERFLOW
 * (input.h) or the error of a write. */
int gm_view_write(FILE *file, const struct gm_pack *packs, size_t count);

#endif
