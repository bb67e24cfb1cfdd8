/*
 * aux_live.c - what is live in a journal: by its tables, and by replaying its trace.
 */
#include "test/unit/journal/aux_live.h"
#include "test/unit/journal/aux_check.h"
#include "test/suite.h"

#include <stdio.h>
#include <string.h>

void aux_complain(void *arg, const char *what, uint64_t where)
{
	(void)arg;
	printf("# violation: %s at %#llx\n", what, (unsigned long long)where);
	fflush(stdout);
}

void aux_read_journal(int fd, struct gm_copy *copy)
{
	int r = gm_copy_from_file(copy, fd);

	if (r < 0)
		ck_abort_msg("unreadable: %s (%s)", strerror(-r), copy->error);
	ck_assert_int_eq(gm_copy_resolve(copy, UINT64_MAX), 0);
	ck_assert_int_eq(gm_copy_check(copy, aux_complain, NULL), 0);
	ck_assert_uint_eq(copy->damage, 0);
}

struct aux_live aux_live_in(const struct gm_copy *copy, uint64_t first, uint64_t stride)
{
	struct aux_live live = { .size = { 0 } };

	for (size_t i = 0; i < copy->segment_count; i++) {
		const struct gm_segment *s = gm_copy_segment(copy, copy->segments[i]);

		if (s->address >= first && s->address < first + AUX_CELLS * stride) {
			live.address[(s->address - first) / stride] = s->address;
			live.size[(s->address - first) / stride] = s->size;
		}
	}
	return live;
}

struct aux_live aux_replayed(const struct gm_copy *copy, uint64_t first, uint64_t stride)
{
	struct aux_live live = { .size = { 0 } };

	for (size_t i = 0; i < copy->event_count; i++) {
		const struct gm_event *e = copy->events[i];
		uint64_t cell = (e->address - first) / stride;
		bool pool = e->domain >= GM_DOMAIN_POOLS;	/* there a block is no segment */

		if (e->address < first || cell >= AUX_CELLS)
			continue;
		if (e->action == GM_ACTION_SEGMENT_ALLOC || e->action == GM_ACTION_SEGMENT_MAP ||
		    (pool && e->action == GM_ACTION_ALLOC)) {
			ck_assert_uint_eq(live.size[cell], 0);
			live.address[cell] = e->address;
			live.size[cell] = e->size;
		} else if (e->action == GM_ACTION_SEGMENT_FREE ||
			   e->action == GM_ACTION_SEGMENT_UNMAP ||
			   (pool && e->action == GM_ACTION_FREE_COMPLETED)) {
			ck_assert_uint_eq(live.size[cell], e->size);
			live.address[cell] = 0;
			live.size[cell] = 0;
		}
	}
	return live;
}

bool aux_same(const struct aux_live *a, const struct aux_live *b)
{
	return !memcmp(a, b, sizeof(*a));
}
