/*
 * aux_forget.h - for a test or bench that starts a second journal in one process.
 *
 * A process of the library's starts one journal, so that gm_recorder_start takes gm_rec for zero. The
 * calling thread must be the only one that records.
 */
#ifndef GM_TEST_AUX_FORGET_H
#define GM_TEST_AUX_FORGET_H

#include <string.h>

#include "recorder/record/threads.h"

static inline void aux_forget(void)
{
	if (gm_rec.slots) {
		memset(gm_rec.slots, 0, gm_rec.slots_used * sizeof(gm_rec.slots[0]));
		memset(gm_rec.lookup, 0, GM_USAGE_LOOKUP * sizeof(gm_rec.lookup[0]));
	}
	memset(&gm_rec, 0, sizeof(gm_rec));
	memset(&gm_tls, 0, sizeof(gm_tls));
}

#endif
