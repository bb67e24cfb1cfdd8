/*
 * test_page_map_moments.c - a reader of the page map that is held up at any instruction, having begun after any
 * store of a change that is over, and followed by another, before the reader goes on.
 *
 * Both threads step themselves: with the trap flag set, SIGTRAP comes after each instruction, and
 * its handler waits where the test wants the thread to stand.
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "allocator/page_map.h"
#include "test/suite.h"

#define UNIT UINT64_C(512)
#define GRANULE (UINT64_C(2) << 20)
#define A (UINT64_C(7) << 34)
#define B (A + GRANULE)
#define TRAP_FLAG 0x100

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)	/* which has signals of its own */
#define CAN_STEP 1
#else
#define CAN_STEP 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define READER_STRIDE 13u		/* many more instructions, which are not the ones that count */
#else
#define READER_STRIDE 3u
#endif

/* What the page map knows of A and of B comes first in their leaf, which is the second that it asks for. */
#define KNOWN 96

static struct gm_page_map *map;
static unsigned char *memory[8];
static unsigned int memory_count;

static void *memory_new(void *arg, size_t bytes)
{
	(void)arg;
	ck_assert_uint_lt(memory_count, 8);
	return memory[memory_count++] = calloc(1, bytes);
}

/* ---- threads that stand still ---- */

struct stepper {
	bool writes;			/* its stores count, not its instructions */
	unsigned int steps, stop_at;	/* so far; after how many it stands still */
	bool stood, over;		/* what is stepped has returned */
	unsigned char known[KNOWN];	/* before the last instruction */
	sem_t stands, go;
};
static __thread struct stepper *me;

static void wait_for(sem_t *sem)
{
	while (sem_wait(sem) && errno == EINTR)
		;
}

static void trap(int signo, siginfo_t *info, void *context)
{
	greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
	int saved_errno = errno;

	(void)signo;
	(void)info;
	*flags &= ~(greg_t)TRAP_FLAG;
	if (me->over || me->stood)
		return;
	if (!me->writes || memcmp(me->known, memory[1], KNOWN)) {
		memcpy(me->known, memory[1], KNOWN);
		me->stood = me->steps++ == me->stop_at;
	}
	if (me->stood) {
		sem_post(&me->stands);
		wait_for(&me->go);
	} else {
		*flags |= TRAP_FLAG;
	}
	errno = saved_errno;
}

/* From here on it is stepped, until stepped_end(). */
static inline void stepped_begin(void)
{
	if (me->writes)
		memcpy(me->known, memory[1], KNOWN);
#ifdef __x86_64__
	__asm__ volatile("int3" ::: "memory");
#endif
}

/* Was it over before it came to where it should stand still? */
static bool stepped_end(void)
{
	me->over = true;
	return !me->stood;
}

/* ---- a change, what follows it, and who reads meanwhile ---- */

struct scene {
	const char *name;
	void (*before)(void);		/* and after what follows, once more: back to the beginning */
	void (*change)(void);
	void (*follows)(void);
	uint64_t asks;			/* the address that is asked for */
	uint32_t allowed[4];		/* answers; 0 is none of ours, and ends the list after the first */
};

static void page_of_one(void)
{
	gm_page_map_remove(map, B, GRANULE);
	gm_page_map_add(map, A, GRANULE, true, 21);
	gm_page_map_split(map, A, 100 * UNIT, 22);
}

static void one_goes(void)
{
	gm_page_map_remove(map, A, GRANULE);
}

static void another_has_its_page(void)
{
	gm_page_map_add(map, B, GRANULE, true, 31);
	gm_page_map_split(map, B, 200 * UNIT, 32);
	gm_page_map_split(map, B + 200 * UNIT, 100 * UNIT, 33);
}

static void two_blocks(void)
{
	gm_page_map_remove(map, A, GRANULE);
	gm_page_map_add(map, A, GRANULE, true, 1);
	gm_page_map_split(map, A, 300 * UNIT, 2);
}

static void cut(void)
{
	gm_page_map_split(map, A + 300 * UNIT, 200 * UNIT, 3);
}

static void cut_again(void)
{
	gm_page_map_split(map, A + 500 * UNIT, 300 * UNIT, 4);
	gm_page_map_merge(map, A + 300 * UNIT, 200 * UNIT, 2);
}

static void join(void)
{
	gm_page_map_merge(map, A, 300 * UNIT, 1);
}

static void join_again(void)
{
	gm_page_map_split(map, A, 600 * UNIT, 5);
}

static const struct scene scenes[] = {
	{ "its page becomes another's", page_of_one, one_goes, another_has_its_page, A + 250 * UNIT, { 0, 21 } },
	{ "its page becomes another's, a beginning", page_of_one, one_goes, another_has_its_page, A + 200 * UNIT,
	  { 0, 21 } },
	{ "cut, in front", two_blocks, cut, cut_again, A + 300 * UNIT, { 1, 3, 2 } },
	{ "cut, behind", two_blocks, cut, cut_again, A + 700 * UNIT, { 1, 4 } },
	{ "joined, in front", two_blocks, join, join_again, A + 100 * UNIT, { 2, 1, 5 } },
	{ "joined, behind", two_blocks, join, join_again, A + 300 * UNIT, { 1, 5 } },
};
#define SCENES ((int)(sizeof(scenes) / sizeof(scenes[0])))

struct play {
	const struct scene *scene;
	struct stepper writer, reader;
	bool writer_done, reader_done;	/* it was over before it came to where it should stand still */
	uint32_t answer;
};

static void *writer(void *arg)
{
	struct play *play = arg;

	me = &play->writer;
	stepped_begin();
	play->scene->change();
	play->writer_done = stepped_end();
	if (play->writer_done)
		sem_post(&play->writer.stands);
	play->scene->follows();
	return NULL;
}

static void *reader(void *arg)
{
	struct play *play = arg;

	me = &play->reader;
	stepped_begin();
	play->answer = gm_page_map_find(map, play->scene->asks);
	play->reader_done = stepped_end();
	if (play->reader_done)
		sem_post(&play->reader.stands);
	return NULL;
}

static void begin_stepper(struct stepper *stepper, bool writes, unsigned int stop_at)
{
	*stepper = (struct stepper){ .writes = writes, .stop_at = stop_at };
	sem_init(&stepper->stands, 0, 0);
	sem_init(&stepper->go, 0, 0);
}

static bool allowed(const struct scene *scene, uint32_t answer)
{
	for (unsigned int i = 0; i < 4 && (i == 0 || scene->allowed[i]); i++)
		if (scene->allowed[i] == answer)
			return true;
	return false;
}

/* The writer stands still after @w stores, the reader begins and does after @r instructions; then the
 * writer ends its change and what follows, and the reader goes on. */
static void play_one(struct play *play, const struct scene *scene, unsigned int w, unsigned int r)
{
	pthread_t threads[2];

	*play = (struct play){ .scene = scene };
	begin_stepper(&play->writer, true, w);
	begin_stepper(&play->reader, false, r);
	ck_assert_int_eq(pthread_create(&threads[0], NULL, writer, play), 0);
	wait_for(&play->writer.stands);
	ck_assert_int_eq(pthread_create(&threads[1], NULL, reader, play), 0);
	wait_for(&play->reader.stands);
	sem_post(&play->writer.go);
	ck_assert_int_eq(pthread_join(threads[0], NULL), 0);
	sem_post(&play->reader.go);
	ck_assert_int_eq(pthread_join(threads[1], NULL), 0);
	ck_assert_msg(allowed(scene, play->answer), "%s: the reader got %u, begun after %u stores of the change, "
		      "held up after %u instructions of its own", scene->name, play->answer, w, r);
}

static void begin_scene(const struct scene *scene)
{
	memory_count = 0;
	map = gm_page_map_new(memory_new, NULL);
	ck_assert_ptr_nonnull(map);
	scene->before();		/* memory[1] is there from now on */
}

START_TEST(answers_in_between)
{
	const struct scene *scene = &scenes[_i];

	begin_scene(scene);
	for (int i = 0; i < 2; i++) {
		ck_assert(allowed(scene, gm_page_map_find(map, scene->asks)));
		scene->change();
		ck_assert(allowed(scene, gm_page_map_find(map, scene->asks)));
		scene->follows();
		ck_assert(allowed(scene, gm_page_map_find(map, scene->asks)));
		scene->before();
	}
}
END_TEST

START_TEST(held_up_at_each_instruction)
{
	const struct scene *scene = &scenes[_i];
	struct sigaction action = { .sa_sigaction = trap, .sa_flags = SA_SIGINFO };
	struct play play = { .writer_done = false };
	unsigned int plays = 0;

	sigaction(SIGTRAP, &action, NULL);
	begin_scene(scene);
	for (unsigned int w = 0; !play.writer_done; w++) {
		play.reader_done = false;
		for (unsigned int r = w % READER_STRIDE; !play.reader_done; r += READER_STRIDE) {
			scene->before();
			play_one(&play, scene, w, r);
			plays++;
		}
	}
	ck_assert_uint_gt(plays, 100 / READER_STRIDE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("page_map_moments");
	TCase *tests = tcase_create("page_map_moments");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, answers_in_between, 0, SCENES);
	if (CAN_STEP)
		tcase_add_loop_test(tests, held_up_at_each_instruction, 0, SCENES);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
