/*
 * sample.h - free bytes of the device, as the driver tells them, into the journal.
 *
 * cuMemGetInfo is allowed during any capture. It is asked after something succeeded or ran out of
 * memory, so never inside a host function; errors are ignored.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_SAMPLE_H
#define GM_PRELOAD_SAMPLE_H

#include <stdint.h>

#include "preload/order/context.h"

/* @where's device holds more than before: ask, at most every 100 ms a device. */
void gm_sample_growth(struct gm_where where);

/* Ask now; bytes of the current device. Both 0 when the driver did not say. */
void gm_sample_now(struct gm_where where, uint64_t *ret_free, uint64_t *ret_total);

#endif
