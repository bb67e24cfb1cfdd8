/*
 * race_host.c - what host threads know to be complete, and the control calls by which they say
 * what the driver cannot see.
 *
 * By default all host threads share their knowledge: they hand it to each other through mutexes,
 * joins and flags of their own, and a detector that took those for races would be useless. With
 * fakecuda_race_threads(1) each thread has its own; allocations and frees then order them, as the
 * lock of any allocator does, and fakecuda_note_release/_acquire.
 *
 * All under fc.lock; the control calls take it.
 */
#include "test/fakecuda/race/race.h"

#include <stdlib.h>

struct host {
	uint64_t thread_id;	/* 0: all of them */
	uint32_t lane;		/* of its own accesses */
	bool has_lane;
	struct race_vc vc;
	struct host *next;
};

static struct host shared;
static struct host *hosts;
static bool separate, configured;
static struct race_vc allocator;	/* known to whoever freed */

bool race_host_separate(void)
{
	if (!configured) {
		configured = true;
		separate = race_config_threads();
	}
	return separate;
}

static struct host *host_now(void)
{
	struct host *h;

	if (!race_host_separate())
		return &shared;
	for (h = hosts; h; h = h->next)
		if (h->thread_id == fc_thread_id())
			return h;
	h = calloc(1, sizeof(*h));
	if (!h) {
		race_broken();
		return &shared;
	}
	h->thread_id = fc_thread_id();
	h->next = hosts;
	hosts = h;
	race_vc_join(&h->vc, &allocator);
	return h;
}

struct race_vc *race_host_vc(void)
{
	return &host_now()->vc;
}

void race_host_learn(const struct race_vc *vc)
{
	race_vc_join(race_host_vc(), vc);
}

void race_host_all(struct race_vc *into)
{
	race_vc_join(into, &shared.vc);
	for (const struct host *h = hosts; h; h = h->next)
		race_vc_join(into, &h->vc);
}

void race_host_release(void)
{
	if (race_host_separate())
		race_vc_join(&allocator, race_host_vc());
}

void race_host_acquire(void)
{
	if (race_host_separate())
		race_vc_join(race_host_vc(), &allocator);
}

void race_host_reset(void)
{
	while (hosts) {
		struct host *h = hosts;

		hosts = h->next;
		race_vc_free(&h->vc);
		free(h);
	}
	race_vc_free(&shared.vc);
	race_vc_free(&allocator);
	shared.has_lane = false;
	configured = false;
}

/* ---- control ---- */

FC_EXPORT void fakecuda_race_threads(int on)
{
	fc_enter_control();
	configured = true;
	separate = on;
	fc_leave_control();
}

/* An access by the host is an operation that has ended: what is submitted later knows it. */
static struct race_op *host_access(void)
{
	struct host *h = host_now();
	struct race_op *ro = race_op_new();

	if (!ro)
		return NULL;
	if (!h->has_lane) {
		h->lane = race_lane_own();
		h->has_lane = true;
	}
	race_vc_join(&ro->start, &h->vc);
	ro->epoch = race_lane_next(&h->vc, h->lane + 1, &ro->lane);
	race_vc_set(&h->vc, ro->lane, ro->epoch);
	ro->start_ok = ro->end_ok = true;
	return ro;
}

FC_EXPORT void fakecuda_note_access(uint64_t ptr, size_t size, int write)
{
	struct race_op *ro;

	fc_enter_control();
	if (race_on()) {
		ro = fc_tls.host_op ? race_op_get(fc_tls.host_op->race) : host_access();
		if (ro) {
			size_t n = ro->n_uses;

			race_op_range(ro, ptr, ptr + size, write ? RACE_WRITE : RACE_READ);
			for (; n < ro->n_uses; n++)
				race_access_start(ro, &ro->uses[n]);
		}
		race_op_put(ro);
	}
	fc_leave_control();
}
