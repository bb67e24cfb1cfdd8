/*
 * aux_replay.h - a trace played from its beginning must end in the tables.
 *
 * The histories of these tests allocate at SLOTS addresses, SPAN bytes apart.
 */
#ifndef GM_TEST_AUX_REPLAY_H
#define GM_TEST_AUX_REPLAY_H

#include <stdint.h>

#include "recorder/read/copy.h"

#define SLOTS 256u
#define SPAN (UINT64_C(16) << 20)

uint64_t address_of(unsigned int slot);
/* The slot of an address; SLOTS when it is none's. */
unsigned int slot_of(uint64_t address);

/* Play the events of a copy from an empty device (or, behind a horizon, from an unknown one):
 * what is live at the end must be what its tables say, address by address. Returns 0 when so. */
int replay(const struct gm_copy *copy);

/* Settle; the test fails when a rule is broken. */
void resolve_sound(struct gm_copy *copy, uint64_t max_events);

#endif
