/*
 * aux_replay.c - a trace played from its beginning must end in the tables: see aux_replay.h.
 */
#include "test/unit/cache/aux_replay.h"
#include "test/unit/journal/aux_check.h"
#include "test/suite.h"

#include <stdio.h>
#include <string.h>

#define BASE UINT64_C(0x7f0000000000)

uint64_t address_of(unsigned int slot)
{
	return BASE + slot * SPAN;
}

unsigned int slot_of(uint64_t address)
{
	uint64_t slot = (address - BASE) / SPAN;

	return address >= BASE && slot < SLOTS && address == address_of((unsigned int)slot) ?
		(unsigned int)slot : SLOTS;
}

static void complain(void *arg, const char *what, uint64_t where)
{
	static unsigned int said;

	(void)arg;
	if (said++ < 10)
		printf("# violation: %s at %#llx\n", what, (unsigned long long)where);
}

/* All that is known of an address whose trace does not lead to the tables. */
static void tell_slot(const struct gm_copy *copy, unsigned int slot)
{
	fprintf(stderr, "#   horizon %llu, cut %llu, %zu in flight, %llu events lost\n",
		(unsigned long long)copy->header->horizon, (unsigned long long)copy->cut_tsc,
		copy->flight_count, (unsigned long long)copy->header->events_lost);
	for (size_t i = 0; i < copy->event_count; i++)
		if (slot_of(copy->events[i]->address) == slot)
			fprintf(stderr, "#   event %zu: %llu, operation %llx, action %u, domain %u\n", i,
				(unsigned long long)copy->events[i]->tsc,
				(unsigned long long)copy->events[i]->op, copy->events[i]->action,
				copy->events[i]->domain);
	for (size_t i = 0; i < copy->segment_count; i++) {
		const struct gm_segment *segment = gm_copy_segment(copy, copy->segments[i]);

		if (slot_of(segment->address) == slot)
			fprintf(stderr, "#   segment: %llu, operation %llx, domain %u\n",
				(unsigned long long)segment->tsc, (unsigned long long)segment->op,
				segment->domain);
	}
}

int replay(const struct gm_copy *copy)
{
	uint64_t live[SLOTS] = { 0 }, table[SLOTS] = { 0 };
	bool known[SLOTS];
	int bad = 0;

	memset(known, copy->header->horizon == 0 && copy->dropped_total == 0, sizeof(known));
	for (size_t i = 0; i < copy->event_count; i++) {
		const struct gm_event *event = copy->events[i];
		unsigned int slot = slot_of(event->address);

		if (event->action == GM_ACTION_ALLOC) {
			if (slot == SLOTS || (known[slot] && live[slot]))
				bad += fprintf(stderr, "# event %zu: alloc at a live %#llx\n", i,
					       (unsigned long long)event->address) > 0;
			else
				live[slot] = event->size;
		} else if (event->action == GM_ACTION_FREE_COMPLETED) {
			if (slot == SLOTS || (known[slot] && live[slot] != event->size))
				bad += fprintf(stderr, "# event %zu: free of %#llx, which has %llu\n", i,
					       (unsigned long long)event->address,
					       slot < SLOTS ? (unsigned long long)live[slot] : 0) > 0;
			else
				live[slot] = 0;
		} else {
			continue;
		}
		if (slot < SLOTS)
			known[slot] = true;
	}
	for (size_t i = 0; i < copy->segment_count; i++) {
		const struct gm_segment *segment = gm_copy_segment(copy, copy->segments[i]);
		unsigned int slot = slot_of(segment->address);

		if (slot == SLOTS || table[slot])
			return bad + 1;
		/* What leaves no events: the trace may know of earlier owners of its address. */
		if (gm_copy_block(copy, segment->first_block)->flags & GM_BLOCK_UNTRACED)
			continue;
		table[slot] = gm_copy_block(copy, segment->first_block)->requested;
	}
	for (unsigned int slot = 0; slot < SLOTS; slot++)
		if (known[slot] && live[slot] != table[slot])
			bad += fprintf(stderr, "# slot %u: %llu in the trace, %llu in the tables\n", slot,
				       (unsigned long long)live[slot],
				       (unsigned long long)table[slot]) > 0;
	for (unsigned int slot = 0; bad && slot < SLOTS; slot++)
		if (known[slot] && live[slot] != table[slot])
			tell_slot(copy, slot);
	return bad;
}

void resolve_sound(struct gm_copy *copy, uint64_t max_events)
{
	ck_assert_int_eq(gm_copy_resolve(copy, max_events), 0);
	ck_assert_int_eq(gm_copy_check(copy, complain, NULL), 0);
}
