/*
 * convert.h - the formats that `gpumem convert` knows, one file each. Single-threaded.
 */
#ifndef GM_TOOLS_CONVERT_H
#define GM_TOOLS_CONVERT_H

#include <stdio.h>

#include "tools/read/load.h"

/* Each writes @loaded to @out and returns 0 or -errno; @note: room for a sentence about what could
 * not be carried over. */
#define GM_CONVERT_NO_EVENTS "there are no events in it: its history kept none (see the option history)"
int gm_convert_pickle(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_torch_json(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_snapshot(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_chrome(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_csv(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_rmm(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_prometheus(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_folded(FILE *out, struct gm_loaded *loaded, char note[256]);
int gm_convert_speedscope(FILE *out, struct gm_loaded *loaded, char note[256]);

#endif
