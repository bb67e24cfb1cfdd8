/*
 * clock.h - the clock that orders events, and its relation to wall time.
 *
 * Thread context: any. gm_stamp and gm_stamp_before are async-signal-safe.
 */
#ifndef GM_RECORDER_CLOCK_H
#define GM_RECORDER_CLOCK_H

#include "recorder/journal/format.h"

struct gm_clock_pair { uint64_t stamp, wall_ns, monotonic_ns; };

/* Choose the source of the stamps. Call once, before any other function here. Reads a file of /sys. */
void gm_clock_init(void);

/* Read all three clocks as one instant: read them several times, and return the reading that took the least time. */
struct gm_clock_pair gm_clock_read(void);

/* Set the source and both pairs of @clock: the first pair to @first, the second to the present time. */
void gm_clock_begin(struct gm_clock *clock, const struct gm_clock_pair *first);

/* Return the wall clock in microseconds since 1970. */
uint64_t gm_wall_us(void);

/* Set the second pair of @clock to the present time. One thread at a time. */
void gm_clock_refresh(struct gm_clock *clock);

#endif
