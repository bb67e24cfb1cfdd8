/*
 * made_copy.h - a journal made by hand, and a copy of it: what the tests of copies begin with. One thread.
 */
#ifndef GM_TEST_MADE_COPY_H
#define GM_TEST_MADE_COPY_H

#include "test/unit/journal/journal_builder.h"


#include "recorder/read/copy.h"
#include "test/suite.h"

#define OP(slot, n) ((uint64_t)(slot) << 40 | (n))
#define MIB (UINT64_C(1) << 20)

static struct jb jb;
static struct gm_copy copy;

static void setup(void)
{
	jb_new(&jb, (struct jb_plan){ 256, 256, 64, 8192 });
	jb_device(&jb, 0, "A device", 80 * MIB);
	memset(&copy, 0, sizeof(copy));
}

static void teardown(void)
{
	gm_copy_free(&copy);
	jb_free_all(&jb);
}

static int make_copy(void)
{
	int fd = jb_file(&jb), r;

	gm_copy_free(&copy);
	r = gm_copy_from_file(&copy, fd);
	close(fd);
	return r;
}

static void resolve_all(uint64_t max_events)
{
	ck_assert_int_eq(make_copy(), 0);
	ck_assert_int_eq(gm_copy_resolve(&copy, max_events), 0);
}

static struct jb_what device_bytes(uint64_t address, uint64_t size, uint64_t op, uint64_t tsc)
{
	return (struct jb_what){ .address = address, .size = size, .op = op, .tsc = tsc };
}

/* An operation is in flight in the thread of @slot. */
static void fly(uint32_t slot, uint64_t op, enum gm_action action, uint64_t address, uint64_t tsc)
{
	struct gm_thread *thread = &jb.threads[slot];

	thread->flight_op = op;
	thread->flight_action = (uint8_t)action;
	thread->flight_address = address;
	thread->flight_tsc = tsc;
}

#endif
