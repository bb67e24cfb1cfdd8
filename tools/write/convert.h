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
typedef int gm_convert(FILE *out, struct gm_loaded *loaded, char note[256]);
gm_convert gm_convert_pickle, gm_convert_torch_json, gm_convert_snapshot, gm_convert_chrome, gm_convert_csv,
	   gm_convert_rmm, gm_convert_prometheus, gm_convert_folded, gm_convert_speedscope;

#endif
