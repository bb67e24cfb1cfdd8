/*
 * test_race_model.c - the race detector against an exact oracle: random programs, whose happens-
 * before is kept as a set of steps for each stream, event and the host.
 */
#include "race.h"

#define STEPS 120
#define STREAMS 4
#define EVENTS 4
#define BLOCKS 3

/* What is known to have happened: a bit per step of the program. */
struct known {
	uint64_t bits[(STEPS + 63) / 64];
};

static void know(struct known *k, int step)
{
	k->bits[step / 64] |= 1ULL << (step % 64);
}

static bool knows(const struct known *k, int step)
{
	return k->bits[step / 64] >> (step % 64) & 1;
}

static void learn(struct known *k, const struct known *from)
{
	for (size_t i = 0; i < sizeof(k->bits) / sizeof(k->bits[0]); i++)
		k->bits[i] |= from->bits[i];
}

struct model {
	CUstream streams[STREAMS];	/* 0: legacy; 1: blocking; others not */
	CUevent events[EVENTS];
	struct known host, tail[STREAMS], recorded[EVENTS], gone;
	int writer[STEPS];		/* block that step wrote, or -1 */
	unsigned int seed, n_racy, n_sound;
};

static unsigned int pick(struct model *m, unsigned int n)
{
	m->seed = m->seed * 1103515245 + 12345;
	return (m->seed >> 16) % n;
}

/* @s goes on: after its own tail, what the host knew, and the legacy rule. */
static void proceed(struct model *m, unsigned int s)
{
	learn(&m->tail[s], &m->host);
	if (s == 0) {
		learn(&m->tail[0], &m->tail[1]);
		learn(&m->tail[0], &m->gone);
	}
	if (s == 1)
		learn(&m->tail[1], &m->tail[0]);
}

static void step_write(struct model *m, int step)
{
	unsigned int s = pick(m, STREAMS), block = pick(m, BLOCKS);
	size_t before = fakecuda_races();
	bool racy_step = false;

	if (pick(m, 4) == 0) {			/* a new life */
		fakecuda_note_free(p + block * 4096);
		fakecuda_note_alloc(p + block * 4096, 4096);
	}
	proceed(m, s);
	for (int i = 0; i < step; i++)
		racy_step |= m->writer[i] == (int)block && !knows(&m->tail[s], i);
	fill(m->streams[s], p + block * 4096, 1, WORDS);
	know(&m->tail[s], step);
	m->n_racy += racy_step;
	m->n_sound += !racy_step;
	m->writer[step] = (int)block;
	ck_assert_msg((fakecuda_races() > before) == racy_step,
		      "step %d: %zu reports, expected %s", step, fakecuda_races() - before,
		      racy_step ? "some" : "none");
}

static void step_other(struct model *m)
{
	unsigned int s = pick(m, STREAMS), e = pick(m, EVENTS);

	switch (pick(m, 8)) {
	case 0: case 1:
		OK(cuEventRecord(m->events[e], m->streams[s]));
		proceed(m, s);
		m->recorded[e] = m->tail[s];
		break;
	case 2: case 3:
		OK(cuStreamWaitEvent(m->streams[s], m->events[e], 0));
		proceed(m, s);
		learn(&m->tail[s], &m->recorded[e]);
		break;
	case 4:
		if (cuEventQuery(m->events[e]) == CUDA_SUCCESS)
			learn(&m->host, &m->recorded[e]);
		break;
	case 5:
		fakecuda_advance(15000);
		break;
	case 6:
		if (s < 2)
			break;
		OK(cuStreamDestroy(m->streams[s]));
		m->streams[s] = stream();
		memset(&m->tail[s], 0, sizeof(m->tail[s]));
		break;
	case 7:
		if (s < 2 || pick(m, 3))
			break;
		OK(cuStreamSynchronize(m->streams[s]));
		learn(&m->host, &m->tail[s]);
		break;
	}
}

START_TEST(random_programs)
{
	unsigned int n_racy = 0, n_sound = 0;

	for (unsigned int seed = 1; seed <= 200; seed++) {
		struct model m = { .seed = seed * 7919 };

		setup();
		m.streams[1] = blocking_stream();
		for (int i = 2; i < STREAMS; i++)
			m.streams[i] = stream();
		for (int i = 0; i < EVENTS; i++)
			m.events[i] = event();
		for (int step = 0; step < STEPS; step++) {
			m.writer[step] = -1;
			if (pick(&m, 3) == 0)
				step_write(&m, step);
			else
				step_other(&m);
		}
		n_racy += m.n_racy;
		n_sound += m.n_sound;
		work_teardown();
	}
	ck_assert_uint_gt(n_racy, 1000);
	ck_assert_uint_gt(n_sound, 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("race, model");
	TCase *tc = tcase_create("model");

	tcase_add_test(tc, random_programs);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
