/* Journals made by hand: what is refused, undone, resolved, dropped, ordered. */
#include "test/unit/read/made_copy.h"

#include <errno.h>
#include <fcntl.h>

#include "test/unit/journal/aux_check.h"
#include "test/suite.h"

static void complain(void *arg, const char *what, uint64_t where)
{
	(void)arg;
	printf("# violation: %s at %#llx\n", what, (unsigned long long)where);
}

static void resolve_sound(void)
{
	resolve_all(UINT64_MAX);
	ck_assert_int_eq(gm_copy_check(&copy, complain, NULL), 0);
}

static void refused(const char *why)
{
	ck_assert_int_eq(make_copy(), -EBADMSG);
	ck_assert_msg(strstr(copy.error, why) != NULL, "%s", copy.error);
	ck_assert_ptr_eq(copy.base, NULL);
}

START_TEST(empty)
{
	resolve_sound();
	ck_assert(copy.consistent);
	ck_assert_uint_eq(copy.event_count, 0);
	ck_assert_uint_eq(copy.segment_count, 0);
	ck_assert_uint_eq(copy.flight_count, 0);
	ck_assert_uint_eq(copy.dropped_total, 0);
}
END_TEST

START_TEST(what_is_no_journal_is_refused)
{
	char reads[40];

	jb.h->magic++;
	refused("not a journal");
	jb.h->magic--;
	jb.h->version = GM_FORMAT_VERSION + 1;
	snprintf(reads, sizeof(reads), "reads format %u", GM_FORMAT_VERSION);
	refused(reads);
	jb.h->version = GM_FORMAT_VERSION;
	jb.h->byte_order = 0x04030201;
	refused("byte order");
	jb.h->byte_order = GM_BYTE_ORDER;
	jb.h->regions[GM_REGION_BLOCKS].offset += UINT64_C(1) << 40;
	refused("'blocks' lies outside");
	jb.h->regions[GM_REGION_BLOCKS].offset -= UINT64_C(1) << 40;
	jb.h->regions[GM_REGION_FRAMES].capacity = UINT64_MAX - 4095;
	refused("'frames' lies outside");
	jb.h->regions[GM_REGION_FRAMES].capacity = 4096;
	jb.h->regions[GM_REGION_USAGE].offset = jb.h->regions[GM_REGION_THREADS].offset;
	refused("overlap");
}
END_TEST

START_TEST(another_layout_is_refused)
{
	jb.h->regions[GM_REGION_BLOCKS].item_bytes = 127;
	refused("'blocks'");
	jb.h->regions[GM_REGION_BLOCKS].item_bytes = 128;
	jb.h->regions[GM_REGION_DOMAINS].item_bytes = 64;
	refused("'domains'");
	jb.h->regions[GM_REGION_DOMAINS].item_bytes = 8192 + 8;	/* the second record would lie askew */
	refused("'domains'");
	jb.h->regions[GM_REGION_DOMAINS].item_bytes = 8192;
	jb.h->region_count = 11;
	refused("another layout");
	jb.h->region_count = GM_REGION_COUNT;
	jb.h->file_bytes = UINT64_C(1) << 60;
	refused("no size of a journal");
	jb.h->file_bytes = jb.bytes;
	ck_assert_int_eq(make_copy(), 0);
}
END_TEST

START_TEST(a_file_cut_off_is_refused)
{
	static const off_t sizes[] = { 0, 1, 4096, GM_HEADER_BYTES - 1, GM_HEADER_BYTES, 100000 };

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int fd = jb_file(&jb);

		ck_assert_int_eq(ftruncate(fd, sizes[i]), 0);
		ck_assert_int_eq(gm_copy_from_file(&copy, fd), -EBADMSG);
		ck_assert_msg(strstr(copy.error, sizes[i] == 0 ? "empty" : sizes[i] <
				     (off_t)GM_HEADER_BYTES ? "only" : "cut off") != NULL, "%s",
			      copy.error);
		close(fd);
	}
	ck_assert_int_eq(gm_copy_from_file(&copy, -1), -EBADF);
	int fd = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(gm_copy_from_file(&copy, fd), -EBADMSG);
	close(fd);
}
END_TEST

START_TEST(tables_and_events)
{
	uint32_t a, b;

	jb_thread(&jb, 1, 100);
	a = jb_alloc(&jb, 1, device_bytes(0x7000000, 2 * MIB, OP(1, 1), 10));
	b = jb_alloc(&jb, 1, device_bytes(0x3000000, 512, OP(1, 2), 20));
	jb_free(&jb, 1, a, OP(1, 3), 30);
	a = jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 4), 40));
	resolve_sound();
	ck_assert_uint_eq(copy.event_count, 9);
	ck_assert_uint_eq(copy.segment_count, 2);
	ck_assert_uint_eq(copy.segments[0], a);
	ck_assert_uint_eq(copy.segments[1], b);
	ck_assert_uint_eq(gm_copy_event_thread(&copy, copy.events[0]), 100);
	ck_assert_uint_eq(copy.end_tsc, 40);
}
END_TEST

/* An allocation that got as far as its events, but not to its end. */
START_TEST(half_an_allocation_is_undone)
{
	struct gm_domain *domain = jb_domain(&jb, 0);
	struct gm_thread *thread = jb_thread(&jb, 1, 100);
	struct gm_domain before;
	uint32_t a;

	jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 1), 10));
	before = *domain;
	domain->undo_op = OP(1, 2);
	for (size_t at = offsetof(struct gm_domain, counts.events) + 8;
	     at < offsetof(struct gm_domain, undo_op); at += 8)
		if (domain->undo_count < 200)
			jb_undo(&jb, 0, (uint8_t *)domain + at);
	jb_undo(&jb, 0, &domain->first_segment);
	jb_undo(&jb, 0, &jb.segments[1].next);
	jb_undo(&jb, 0, &jb.segments[2].used);
	jb_undo(&jb, 0, &jb.blocks[2].state);
	for (int row = 1; row < 4; row++)
		for (size_t at = 8; at < 56; at += 8)
			jb_undo(&jb, 0, (uint8_t *)&jb.usage[row] + at);
	a = jb_alloc(&jb, 1, device_bytes(0x2000000, MIB, OP(1, 2), 20));
	thread->flight_op = OP(1, 2);
	thread->flight_action = GM_ACTION_ALLOC;
	thread->flight_size = MIB;
	thread->flight_tsc = 15;
	resolve_sound();
	ck_assert_uint_eq(copy.undone, 1);
	ck_assert_uint_eq(copy.segment_count, 1);
	ck_assert_ptr_eq(gm_copy_segment(&copy, a), NULL);
	ck_assert_uint_eq(copy.event_count, 2);
	ck_assert_uint_eq(copy.dropped_total, 0);
	ck_assert(!memcmp(&gm_copy_domain(&copy, 0)->stats, &before.stats, sizeof(before.stats)));
	/* Nothing shows that it was complete: it is in flight. */
	ck_assert_uint_eq(copy.flight_count, 1);
	ck_assert_uint_eq(copy.flights[0].size, MIB);
	ck_assert_uint_eq(copy.flights[0].tid, 100);
	/* The same, complete: nothing to undo, nothing in flight. */
	domain->undo_op = 0;
	resolve_sound();
	ck_assert_uint_eq(copy.undone, 0);
	ck_assert_uint_eq(copy.segment_count, 2);
	ck_assert_uint_eq(copy.event_count, 4);
	ck_assert_uint_eq(copy.flight_count, 0);
}
END_TEST

/* A block that its thread was about to cache: the tally, the state and the events, or nothing. */
START_TEST(half_a_cached_block_is_undone)
{
	struct gm_tcache_record *tcache = jb_tcache(&jb, 1, 0);
	struct gm_tally *tally = &tcache->tallies[3];
	const struct gm_domain *domain;
	uint32_t a;

	jb_thread(&jb, 1, 100);
	a = jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 1), 10));
	jb.segments[jb.blocks[a].segment].heap = 1;
	jb.blocks[a].state = GM_BLOCK_FREEING;
	tally->size = MIB;
	jb_tcache_undo(&jb, tcache, &jb.blocks[a].state);
	jb_tcache_undo(&jb, tcache, &tally->puts);
	jb_tcache_undo(&jb, tcache, &tally->put_bytes);
	jb.blocks[a].state = GM_BLOCK_CACHED;
	jb.blocks[a].op = OP(1, 2);
	tally->puts = 1;
	tally->put_bytes = MIB;
	for (unsigned int i = 0; i < 2; i++) {
		jb_event(&jb, 1, OP(1, 2), i ? GM_ACTION_FREE_COMPLETED : GM_ACTION_FREE_REQUESTED, 0,
			 20, 0x1000000, MIB);
		jb_domain(&jb, 0)->counts.events--;
		tcache->counts.events++;
	}
	tcache->undo_op = OP(1, 2);
	resolve_sound();
	ck_assert_uint_eq(copy.undone, 1);
	ck_assert_uint_eq(copy.event_count, 2);
	ck_assert_uint_eq(copy.dropped_total, 0);
	ck_assert_uint_eq(gm_copy_block(&copy, a)->state, GM_BLOCK_FREEING);
	domain = gm_copy_domain(&copy, 0);
	ck_assert_int_eq(domain->stats.stat[GM_STAT_ALLOCATION][0].current, 1);
	ck_assert_uint_eq(domain->counts.events, 4);
	/* The same, complete. */
	tcache->undo_op = 0;
	resolve_sound();
	ck_assert_uint_eq(copy.undone, 0);
	ck_assert_uint_eq(copy.event_count, 4);
	ck_assert_uint_eq(gm_copy_block(&copy, a)->state, GM_BLOCK_INACTIVE);
	domain = gm_copy_domain(&copy, 0);
	ck_assert_int_eq(domain->stats.stat[GM_STAT_ALLOCATION][0].current, 0);
	ck_assert_int_eq(domain->stats.stat[GM_STAT_ALLOCATION][0].freed, 1);
	ck_assert_uint_eq(domain->live_bytes[GM_KIND_DEVICE], 0);
	/* What no writer leaves. */
	tcache->undo_op = OP(1, 2);
	tcache->undo_count = GM_TCACHE_UNDO + 1;
	resolve_all(UINT64_MAX);
	ck_assert_uint_eq(copy.damage, 1);
	tcache->undo_op = 0;
	tcache->domain = GM_DOMAINS;
	resolve_all(UINT64_MAX);
	ck_assert_uint_eq(copy.damage, 1);
}
END_TEST

START_TEST(the_oldest_value_of_a_word_wins)
{
	struct gm_domain *domain = jb_domain(&jb, 0);

	domain->undo_op = OP(1, 1);
	domain->live_bytes[GM_KIND_ARRAY] = 0;
	jb_undo(&jb, 0, &domain->live_bytes[GM_KIND_ARRAY]);
	domain->live_bytes[GM_KIND_ARRAY] = 5;
	jb_undo(&jb, 0, &domain->live_bytes[GM_KIND_ARRAY]);
	domain->live_bytes[GM_KIND_ARRAY] = 7;
	resolve_sound();
	ck_assert_uint_eq(gm_copy_domain(&copy, 0)->live_bytes[GM_KIND_ARRAY], 0);
}
END_TEST

/* An undo entry may name nothing but words of the tables. */
START_TEST(an_undo_that_points_elsewhere_is_left_out)
{
	struct gm_domain *domain = jb_domain(&jb, 0);
	const uint64_t bad[] = {
		0, 8, offsetof(struct gm_header, regions), 7,
		jb.h->regions[GM_REGION_DOMAINS].offset + offsetof(struct gm_domain, undo),
		jb.h->regions[GM_REGION_DOMAINS].offset + 8192 + 16,	/* another domain's */
		jb.h->regions[GM_REGION_STRINGS].offset, jb.h->regions[GM_REGION_EVENTS].offset + 8,
		jb.h->regions[GM_REGION_SEGMENTS].offset + 128,		/* not in use */
		jb.h->regions[GM_REGION_SEGMENTS].offset + 4, jb.bytes, UINT64_MAX - 7,
	};

	domain->undo_op = OP(1, 1);
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		domain->undo[domain->undo_count++] = (struct gm_undo_entry){ bad[i], 0x4141414141 };
	resolve_all(UINT64_MAX);
	ck_assert_uint_eq(copy.damage, sizeof(bad) / sizeof(bad[0]));
	ck_assert_uint_eq(copy.header->magic, GM_MAGIC);
	domain->undo_count = UINT32_MAX;
	resolve_all(UINT64_MAX);
	ck_assert_uint_ge(copy.damage, 1);
}
END_TEST

START_TEST(a_free_under_way_is_still_live)
{
	uint32_t a;

	jb_thread(&jb, 1, 100);
	a = jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 1), 10));
	jb.blocks[a].state = GM_BLOCK_FREEING;
	fly(1, OP(1, 2), GM_ACTION_FREE_REQUESTED, 0x1000000, 20);
	resolve_sound();
	ck_assert_uint_eq(copy.segment_count, 1);
	ck_assert_uint_eq(copy.flight_count, 1);
	ck_assert(!copy.flights[0].done);
	ck_assert_uint_eq(copy.event_count, 2);
}
END_TEST

/* Another thread got the same address before the free was recorded: the free did happen. */
START_TEST(an_address_handed_out_again_was_freed)
{
	static const uint64_t addresses[] = { 0x1000000, 0x1080000, 0x0f80000 };
	uint32_t a, b;

	jb_thread(&jb, 1, 100);
	jb_thread(&jb, 2, 200);
	a = jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 1), 10));
	jb_alloc(&jb, 1, device_bytes(0x5000000, MIB, OP(1, 2), 11));
	jb.blocks[a].state = GM_BLOCK_FREEING;
	fly(1, OP(1, 3), GM_ACTION_FREE_REQUESTED, 0x1000000, 20);
	b = jb_alloc(&jb, 2, device_bytes(addresses[_i], MIB, OP(2, 1), 30));
	resolve_sound();
	ck_assert_uint_eq(copy.segment_count, 2);
	ck_assert_uint_eq(copy.segments[0], b);
	ck_assert_uint_eq(gm_copy_domain(&copy, 0)->live_bytes[GM_KIND_DEVICE], 2 * MIB);
	ck_assert_uint_eq(copy.flight_count, 1);
	ck_assert(copy.flights[0].done);
	ck_assert_uint_eq(copy.event_count, 9);
	ck_assert_uint_eq(copy.events[4]->action, GM_ACTION_FREE_REQUESTED);
	ck_assert_uint_eq(copy.events[4]->tsc, 20);
	ck_assert_uint_eq(copy.events[6]->action, GM_ACTION_SEGMENT_FREE);
	ck_assert_uint_eq(gm_copy_event_thread(&copy, copy.events[4]), 100);
	ck_assert_uint_eq(copy.events[7]->op, OP(2, 1));
	ck_assert_uint_eq(copy.dropped_total, 0);
}
END_TEST

/* Of who got the address meanwhile the history has kept only the free: handed out it was before the
 * horizon, and so the free under way is no part of the trace. */
START_TEST(an_address_given_back_was_handed_out)
{
	unsigned int i = (unsigned int)_i, flown = i % 2, again = i / 2;
	uint32_t a, b;

	jb_thread(&jb, 1, 100);
	jb_thread(&jb, 2, 200);
	a = jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 1), 10));
	jb.blocks[a].state = GM_BLOCK_FREEING;
	if (flown)				/* else its thread has no slot */
		fly(1, OP(1, 2), GM_ACTION_FREE_REQUESTED, 0x1000000, 20);
	b = jb_alloc(&jb, 2, device_bytes(0x1000000, MIB, OP(2, 1), 30));
	jb_free(&jb, 2, b, OP(2, 2), 50);
	if (again)				/* and it was used again */
		jb_alloc(&jb, 2, device_bytes(0x1000000, MIB, OP(2, 3), 60));
	jb.h->horizon = 40;
	jb_chunk(&jb, jb.threads[2].chunk - 1)->generation++;	/* the alloc is not there any more */
	for (unsigned int place = 3; place < jb.places[2]; place++)
		((struct gm_event *)jb_chunk(&jb, jb.threads[2].chunk - 1))[place].commit += 1 << 8;
	resolve_sound();
	ck_assert_uint_eq(copy.segment_count, again);
	ck_assert_uint_eq(copy.flight_count, flown);
	ck_assert(!copy.flight_count || copy.flights[0].done);
	ck_assert_uint_eq(copy.event_count, 3 + 2 * again);
	ck_assert_uint_eq(copy.events[0]->op, OP(2, 2));
}
END_TEST

/* Two frees of one address are under way: each is stamped when it began itself. */
START_TEST(each_free_has_its_own_flight)
{
	static const uint64_t began[] = { 20, 40 };
	uint32_t ids[2];

	for (uint32_t i = 0; i < 2; i++) {	/* the later one's thread has the lower slot */
		jb_thread(&jb, 2 - i, 100 + i);
		ids[i] = jb_alloc(&jb, 2 - i, device_bytes(0x1000000, MIB, OP(2 - i, 1),
							   began[i] - 10));
		jb.blocks[ids[i]].state = GM_BLOCK_FREEING;
		fly(2 - i, OP(2 - i, 2), GM_ACTION_FREE_REQUESTED, 0x1000000, began[i]);
	}
	jb_thread(&jb, 3, 300);
	jb_alloc(&jb, 3, device_bytes(0x1000000, MIB, OP(3, 1), 50));
	resolve_sound();
	ck_assert_uint_eq(copy.segment_count, 1);
	ck_assert(copy.flights[0].done && copy.flights[1].done);
	ck_assert_uint_eq(copy.event_count, 12);
	for (uint32_t i = 0; i < 2; i++) {
		const struct gm_event *event = copy.events[5 * i + 3];

		ck_assert_uint_eq(event->action, GM_ACTION_FREE_COMPLETED);
		ck_assert_uint_eq(event->tsc, began[i]);
		ck_assert_uint_eq(event->op, OP(2 - i, 2));
	}
}
END_TEST

/* Handles are no addresses: an array's may lie anywhere, and only an equal one is in its way. */
START_TEST(handles_do_not_overlap)
{
	struct jb_what what = device_bytes(0x1000000, MIB, OP(1, 1), 10);
	uint32_t a;

	jb_thread(&jb, 1, 100);
	what.kind = GM_KIND_ARRAY;
	a = jb_alloc(&jb, 1, what);
	jb.blocks[a].state = GM_BLOCK_FREEING;
	jb_alloc(&jb, 1, device_bytes(0x1000100, MIB, OP(1, 2), 20));
	resolve_sound();
	ck_assert_uint_eq(copy.segment_count, 2);
	what.tsc = 30;
	what.op = OP(1, 3);
	jb_alloc(&jb, 1, what);
	resolve_sound();
	ck_assert_uint_eq(copy.segment_count, 2);
	ck_assert_ptr_eq(gm_copy_segment(&copy, a), NULL);
}
END_TEST

/* Without history the tables alone show that an operation was complete. */
START_TEST(flights_without_events)
{
	struct jb_what what = device_bytes(0x1000000, MIB, OP(1, 1), 10);
	uint32_t a, b;

	jb_thread(&jb, 1, 100);
	jb_thread(&jb, 2, 200);
	jb_thread(&jb, 3, 300);
	a = jb_put(&jb, what);
	b = jb_put(&jb, device_bytes(0x2000000, MIB, OP(2, 7), 11));
	fly(1, OP(1, 1), GM_ACTION_ALLOC, 0, 5);		/* a: complete */
	fly(2, OP(2, 8), GM_ACTION_FREE_REQUESTED, 0x2000000, 20);	/* b: not */
	fly(3, OP(3, 1), GM_ACTION_COUNT, 0, 30);		/* nonsense */
	resolve_all(UINT64_MAX);
	ck_assert_uint_eq(copy.flight_count, 1);
	ck_assert_uint_eq(copy.flights[0].op, OP(2, 8));
	ck_assert_uint_eq(copy.damage, 1);
	ck_assert_uint_eq(jb.blocks[a].state, jb.blocks[b].state);
}
END_TEST

START_TEST(one_horizon)
{
	struct gm_chunk *old;
	uint64_t n = 0;

	jb_thread(&jb, 1, 100);
	jb_thread(&jb, 2, 200);
	for (uint64_t i = 1; i <= 150; i++) {
		jb_event(&jb, 1, OP(1, i), GM_ACTION_OOM, 0, 10 * i, 0, 1);
		if (i % 2 == 0)
			jb_event(&jb, 2, OP(2, i), GM_ACTION_OOM, 1, 10 * i + 5, 0, 1);
	}
	resolve_sound();
	ck_assert_uint_eq(copy.event_count, 225);
	ck_assert_uint_eq(copy.dropped_total, 0);
	/* Thread 1's first chunk is recycled by thread 2, and a chunk that ended at stamp 645. */
	old = jb_chunk(&jb, 0);
	ck_assert_uint_lt(old->last_tsc, 645);
	jb.h->horizon = 645;		/* where an event lies that is still there */
	old->generation++;
	old->slot = 2;
	old->tid = 200;
	resolve_sound();
	for (size_t i = 0; i < copy.event_count; i++)
		n += copy.events[i]->tsc <= 645;
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(copy.event_count, 86 + 43);
	ck_assert_uint_eq(copy.dropped[0], 64);
	ck_assert_uint_eq(copy.dropped[1], 32);
	ck_assert_uint_eq(copy.dropped_total, 96);
	jb.h->events_lost = 5;
	resolve_all(40);
	ck_assert_uint_eq(copy.event_count, 40);
	ck_assert_uint_eq(copy.dropped_total, 225 - 40 + 5);
	ck_assert_uint_eq(copy.dropped[0] + copy.dropped[1], 225 - 40);
}
END_TEST

START_TEST(incomplete_events_are_none)
{
	struct gm_event *event;

	jb_thread(&jb, 1, 100);
	event = jb_event(&jb, 1, OP(1, 1), GM_ACTION_OOM, 0, 10, 0, 1);
	event->commit = 0;
	event = jb_event(&jb, 1, OP(1, 2), GM_ACTION_OOM, 0, 20, 0, 1);
	event->commit ^= 1 << 8;		/* of another life of the chunk */
	event = jb_event(&jb, 1, OP(1, 3), GM_ACTION_OOM, 0, 30, 0, 1);
	event->commit++;			/* of another place */
	event = jb_event(&jb, 1, OP(1, 4), GM_ACTION_OOM, 0, 40, 0, 1);
	resolve_sound();
	ck_assert_uint_eq(copy.event_count, 1);
	ck_assert_uint_eq(copy.events[0]->tsc, 40);
	event->domain = GM_DOMAINS;
	resolve_all(UINT64_MAX);
	ck_assert_uint_eq(copy.event_count, 0);
	ck_assert_uint_eq(copy.damage, 1);
}
END_TEST

START_TEST(an_operation_is_not_cut_in_two)
{
	uint32_t a;

	jb_thread(&jb, 1, 100);
	a = jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 1), 10));
	jb_free(&jb, 1, a, OP(1, 2), 20);
	jb_alloc(&jb, 1, device_bytes(0x1000000, MIB, OP(1, 3), 30));
	resolve_all(4);		/* would begin within the free */
	ck_assert_uint_eq(copy.event_count, 2);
	ck_assert_uint_eq(copy.dropped[0], 5);
	resolve_all(5);
	ck_assert_uint_eq(copy.event_count, 5);
	resolve_all(0);
	ck_assert_uint_eq(copy.event_count, 0);
	ck_assert_uint_eq(copy.dropped_total, 7);
}
END_TEST

/* Stamps first; equal ones by thread slot, then by place, whatever the order of the chunks. */
START_TEST(order_is_stamp_slot_place)
{
	unsigned int seed = 20251120;
	uint64_t clock = 1;

	printf("# seed %u\n", seed);
	for (uint32_t slot = 1; slot < 6; slot++)
		jb_thread(&jb, slot, 100 * slot);
	for (uint64_t i = 1; i <= 3000; i++) {
		uint32_t slot = 1 + (uint32_t)rand_r(&seed) % 5;

		if (rand_r(&seed) % 3 == 0)
			clock += (uint64_t)rand_r(&seed) % 2000000000000;
		jb_event(&jb, slot, OP(slot, i), GM_ACTION_OOM, 0, clock, 0, i);
	}
	resolve_sound();
	ck_assert_uint_eq(copy.event_count, 3000);
	for (size_t i = 1; i < 3000; i++) {
		const struct gm_event *a = copy.events[i - 1], *b = copy.events[i];
		uint64_t slot_a = a->op >> 40, slot_b = b->op >> 40;

		ck_assert(a->tsc < b->tsc || (a->tsc == b->tsc && (slot_a < slot_b ||
			  (slot_a == slot_b && a->size < b->size))));
	}
}
END_TEST

START_TEST(every_counter_is_checked)
{
	struct gm_domain *domain = jb_domain(&jb, 0);

	jb_thread(&jb, 1, 100);
	jb_alloc(&jb, 1, device_bytes(0x1000000, 3 * MIB, OP(1, 1), 10));
	resolve_sound();
	domain->live_bytes[GM_KIND_DEVICE]++;
	resolve_all(UINT64_MAX);
	ck_assert_int_ge(gm_copy_check(&copy, NULL, NULL), 1);
	domain->live_bytes[GM_KIND_DEVICE]--;
	domain->stats.stat[GM_STAT_REQUESTED_BYTES][GM_POOL_LARGE].current--;
	resolve_all(UINT64_MAX);
	ck_assert_int_ge(gm_copy_check(&copy, NULL, NULL), 1);
	domain->stats.stat[GM_STAT_REQUESTED_BYTES][GM_POOL_LARGE].current++;
	jb.usage[1].current_bytes++;
	resolve_all(UINT64_MAX);
	ck_assert_int_ge(gm_copy_check(&copy, NULL, NULL), 1);
	jb.usage[1].current_bytes--;
	jb.blocks[1].stack = 4096;
	resolve_all(UINT64_MAX);
	ck_assert_int_ge(gm_copy_check(&copy, NULL, NULL), 1);
	jb.blocks[1].stack = 0;
	jb_put(&jb, device_bytes(0x1100000, MIB, OP(1, 2), 20));	/* overlaps */
	resolve_all(UINT64_MAX);
	ck_assert_int_ge(gm_copy_check(&copy, NULL, NULL), 1);
}
END_TEST

START_TEST(accessors_check)
{
	uint32_t text = jb_string(&jb, "libtorch_cuda.so"), length;
	const uint32_t frames[] = { 1, 2 };
	uint32_t stack = jb_stack(&jb, frames, 2);

	jb_module(&jb, "/a.so", 4096);
	resolve_sound();
	ck_assert_str_eq(gm_copy_string(&copy, text, &length), "libtorch_cuda.so");
	ck_assert_uint_eq(length, 16);
	ck_assert_ptr_ne(gm_copy_stack(&copy, stack), NULL);
	ck_assert_ptr_ne(gm_copy_module(&copy, 1), NULL);
	for (uint32_t id = 0; id < 9000; id++) {	/* never past the end, whatever the id */
		gm_copy_string(&copy, id, &length);
		gm_copy_stack(&copy, id);
		gm_copy_frame(&copy, id);
		gm_copy_block(&copy, id);
		gm_copy_segment(&copy, id);
	}
	ck_assert_ptr_eq(gm_copy_module(&copy, 2), NULL);
	ck_assert_ptr_eq(gm_copy_stack(&copy, UINT32_MAX), NULL);
	ck_assert_str_eq(gm_copy_string(&copy, UINT32_MAX & ~7u, &length), "");
	ck_assert_str_eq(gm_copy_string(&copy, text + 1, &length), "");
	((struct gm_string *)((uint8_t *)jb_region(&jb, GM_REGION_STRINGS) + text))->length = 1 << 30;
	((struct gm_stack *)((uint8_t *)jb_region(&jb, GM_REGION_STACKS) + stack))->count = 65535;
	resolve_all(UINT64_MAX);
	ck_assert_str_eq(gm_copy_string(&copy, text, &length), "");
	ck_assert_ptr_eq(gm_copy_stack(&copy, stack), NULL);
}
END_TEST

START_TEST(stamps_are_wall_clock)
{
	struct gm_clock *clock = &jb.h->clock;

	ck_assert_int_eq(make_copy(), 0);
	ck_assert_uint_eq(gm_copy_wall_us(&copy, 0), 0);
	/* 3 GHz; the wall clock was set forward by a day between the pairs. */
	clock->source = 0;
	clock->stamp[0] = 3000000000;
	clock->monotonic_ns[0] = 1000000000;
	clock->wall_ns[0] = UINT64_C(1700000000000000000);
	clock->stamp[1] = 33000000000;
	clock->monotonic_ns[1] = 11000000000;
	clock->wall_ns[1] = UINT64_C(1700086410000000000);
	ck_assert_int_eq(make_copy(), 0);
	ck_assert_uint_eq(gm_copy_wall_us(&copy, 33000000000), UINT64_C(1700086410000000));
	ck_assert_int_le(llabs((long long)gm_copy_wall_us(&copy, 36000000000) -
			       1700086411000000), 1);
	ck_assert_int_le(llabs((long long)gm_copy_wall_us(&copy, 30000000000) -
			       1700086409000000), 1);
	ck_assert_uint_eq(gm_copy_wall_us(&copy, 0) / 1000000, 1700086398 + 1);
	/* One pair only, and a clock that counts nanoseconds. */
	clock->source = 1;
	clock->stamp[1] = clock->wall_ns[1] = clock->monotonic_ns[1] = 0;
	ck_assert_int_eq(make_copy(), 0);
	ck_assert_uint_eq(gm_copy_wall_us(&copy, 3000005000), UINT64_C(1700000000000005));
	/* Nonsense does not trap. */
	clock->stamp[1] = clock->stamp[0] + 1;
	clock->monotonic_ns[1] = UINT64_MAX;
	ck_assert_int_eq(make_copy(), 0);
	gm_copy_wall_us(&copy, UINT64_MAX);
}
END_TEST

START_TEST(broken_lists_end)
{
	uint32_t ids[8];
	uint32_t at = 0, steps = 0;
	struct gm_block_walk walk = { 0 };

	jb_thread(&jb, 1, 100);
	for (uint64_t i = 0; i < 8; i++)
		ids[i] = jb_alloc(&jb, 1, device_bytes(0x1000000 + i * MIB, i == 3 ? 0 : MIB,
						       OP(1, i + 1), 10 * i + 10));
	jb.segments[ids[7]].next = ids[0];		/* the domain's list: a ring */
	jb.blocks[ids[0]].next = ids[0];		/* a block after itself */
	jb.blocks[ids[1]].next = ids[2];		/* a block of another segment */
	jb.blocks[ids[2]].next = 0x7fffffff;
	jb.blocks[ids[3]].next = ids[3];		/* an empty block after itself */
	jb.segments[ids[4]].first_block = ids[5];
	jb.segments[ids[5]].first_block = GM_NONE;
	resolve_all(UINT64_MAX);
	ck_assert_int_gt(gm_copy_check(&copy, NULL, NULL), 6);
	while ((at = gm_copy_next_block(&copy, ids[3], at, &walk)) && steps < 10000)
		steps++;
	ck_assert(walk.broken);
	ck_assert_uint_le(steps, 256);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy");
	TCase *tcase = tcase_create("copy");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, empty);
	tcase_add_test(tcase, what_is_no_journal_is_refused);
	tcase_add_test(tcase, another_layout_is_refused);
	tcase_add_test(tcase, a_file_cut_off_is_refused);
	tcase_add_test(tcase, tables_and_events);
	tcase_add_test(tcase, half_an_allocation_is_undone);
	tcase_add_test(tcase, half_a_cached_block_is_undone);
	tcase_add_test(tcase, the_oldest_value_of_a_word_wins);
	tcase_add_test(tcase, an_undo_that_points_elsewhere_is_left_out);
	tcase_add_test(tcase, a_free_under_way_is_still_live);
	tcase_add_loop_test(tcase, an_address_handed_out_again_was_freed, 0, 3);
	tcase_add_loop_test(tcase, an_address_given_back_was_handed_out, 0, 4);
	tcase_add_test(tcase, each_free_has_its_own_flight);
	tcase_add_test(tcase, handles_do_not_overlap);
	tcase_add_test(tcase, flights_without_events);
	tcase_add_test(tcase, one_horizon);
	tcase_add_test(tcase, incomplete_events_are_none);
	tcase_add_test(tcase, an_operation_is_not_cut_in_two);
	tcase_add_test(tcase, order_is_stamp_slot_place);
	tcase_add_test(tcase, every_counter_is_checked);
	tcase_add_test(tcase, accessors_check);
	tcase_add_test(tcase, broken_lists_end);
	tcase_add_test(tcase, stamps_are_wall_clock);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
