/*
 * Copies of a journal in which threads serve memory from cached heaps, and of one whose process was
 * killed: each must show one moment. Segments tile, tables and events agree, and what had returned
 * before the kill is there.
 *
 *	SEED=n  the seed      GM_STRESS=x  how long
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "test/suite.h"
#include "test/unit/cache/aux_cache_heap.h"
#include "test/unit/journal/aux_journal.h"
#include "test/seed.h"
/* A clock that is read by a system call, which is one step. The vDSO reads again until the host has left its record of
 * the time alone, and where the clock source is kvm-clock, the host changes the record between any two steps. */
#include "test/unit/leaps.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)	/* many times as slow */
#define SANITIZED 1
#define COPIES 30
#define KILLS 6
#else
#define SANITIZED 0
#define COPIES 60
#define KILLS 15
#endif
#define THREADS 4u
#define HEAPS 3u			/* that all use: two in domain 0, one in domain 1 */
#define CELLS 48u
#define OWN 8u				/* the first cells are of a heap of the thread's own */
#define ALL_OWN (THREADS * CELLS + 1)
#define STEPS UINT64_C(1500)
#define SMALL_CAPACITY (UINT64_C(96) << 20)

enum { NOTHING, LIVE, PENDING };
struct held { _Atomic(uint64_t) address; uint64_t requested; uint32_t state; };

struct shared {				/* also of a process that is killed */
	struct thread {
		struct held held[CELLS];
		_Atomic(uint32_t) busy;	/* cell + 1, of all, that may be either way */
		_Atomic(uint64_t) steps;
	} threads[THREADS];
	_Atomic(uint64_t) allowed;	/* steps of each thread, which then waits for more */
	_Atomic(bool) stop;
};
static struct shared *shared;

/* ---- the program ---- */

struct worker {
	unsigned int number, seed;
	struct gm_cache_heap *own;
	struct { struct gm_cache_heap *heap; uint32_t block; } cell[CELLS];
	uint64_t errors;
};

static struct gm_cache_heap *heaps[HEAPS];
static pthread_mutex_t owners[THREADS] = {
	PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
	PTHREAD_MUTEX_INITIALIZER
};
static pthread_mutex_t growth[HEAPS] = {
	PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER
};

static void lock_growth(const struct gm_cache_heap *heap, bool on)
{
	for (unsigned int h = 0; h < HEAPS; h++)
		if (heaps[h] == heap && on)
			pthread_mutex_lock(&growth[h]);
		else if (heaps[h] == heap)
			pthread_mutex_unlock(&growth[h]);
}

static void do_alloc(struct worker *w, struct held *held, struct worker *owner, unsigned int cell)
{
	struct gm_cache_heap *heap = cell < OWN ? w->own : heaps[(unsigned int)rand_r(&w->seed) % HEAPS];
	unsigned int shift = (unsigned int)rand_r(&w->seed) % 24;
	uint64_t any = 1 + (uint64_t)rand_r(&w->seed) % (1u << shift);
	/* Some sizes again and again, as programs ask for them: what is cached is found. */
	uint64_t bytes = rand_r(&w->seed) % 3 ? UINT64_C(4096) << any % 3 : any;
	struct gm_alloc alloc = aux_request(bytes, (uint64_t)rand_r(&w->seed) % 2,
					    (uint16_t)(1 + w->number));
	uint64_t op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, alloc.requested);
	uint32_t block;
	int r = gm_cache_heap_alloc(heap, op, &alloc, &block);

	if (r == -EAGAIN) {
		lock_growth(heap, true);
		r = gm_cache_heap_grow(heap, op, &alloc, &block);
		lock_growth(heap, false);
	}
	gm_op_end(op);
	if (r) {
		w->errors += r != -ENOMEM;
		return;
	}
	owner->cell[cell].heap = heap;
	owner->cell[cell].block = block;
	held->requested = alloc.requested;
	held->state = LIVE;
	held->address = alloc.address;
}

static void do_free(struct worker *w, struct held *held, const struct worker *owner,
		    unsigned int cell)
{
	bool now = rand_r(&w->seed) % 2;

	w->errors += aux_release(owner->cell[cell].heap, owner->cell[cell].block, held->address,
				 now) != 0;
	held->state = now ? NOTHING : PENDING;
	if (now)
		held->address = 0;
}

/* The context of the thread's own heap ends. */
static void do_drop(struct worker *w, struct thread *me)
{
	me->busy = ALL_OWN;
	gm_op_begin(GM_ACTION_FREE_REQUESTED, GM_KIND_DEVICE, 0, 0, 0);
	gm_cache_heap_drop(w->own, 0, GM_NONE);
	w->own = aux_heap(0, GM_KIND_DEVICE, 100 + w->number, "", GM_HEAP_UNLIMITED);
	for (unsigned int i = 0; i < OWN; i++) {
		me->held[i].state = NOTHING;
		me->held[i].address = 0;
	}
	me->busy = 0;
}

static void step(struct worker *w, struct thread *me)
{
	unsigned int cell = (unsigned int)rand_r(&w->seed) % CELLS, owner = w->number;
	struct worker *all = w - w->number;
	struct held *held;

	if (rand_r(&w->seed) % 400 == 0) {
		do_drop(w, me);
		return;
	}
	if (rand_r(&w->seed) % 200 == 0) {
		unsigned int h = (unsigned int)rand_r(&w->seed) % HEAPS;

		lock_growth(heaps[h], true);
		gm_cache_heap_empty(heaps[h], UINT64_MAX);
		lock_growth(heaps[h], false);
		return;
	}
	/* Of the shared heaps' blocks some are freed by another thread than asked for them. */
	if (cell >= OWN) {
		owner += (unsigned int)rand_r(&w->seed) % 4 ? 0 : THREADS - 1;
		owner %= THREADS;
	}
	held = &shared->threads[owner].held[cell];
	pthread_mutex_lock(&owners[owner]);
	me->busy = owner * CELLS + cell + 1;
	if (!held->address) {
		do_alloc(w, held, &all[owner], cell);
	} else if (held->state == LIVE) {
		do_free(w, held, &all[owner], cell);
	} else {
		aux_complete(all[owner].cell[cell].heap, all[owner].cell[cell].block);
		held->state = NOTHING;
		held->address = 0;
	}
	me->busy = 0;
	pthread_mutex_unlock(&owners[owner]);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct thread *me = &shared->threads[w->number];

	while (!shared->stop) {
		if (me->steps >= shared->allowed) {
			usleep(100);
			continue;
		}
		step(w, me);
		me->steps++;
	}
	return NULL;
}

static void begin_shared(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	shared->allowed = UINT64_MAX;
}

static void run_workers(pthread_t *threads, struct worker *workers, unsigned int seed,
			uint64_t history)
{
	aux_driver_begin(seed % 2 ? UINT64_MAX : SMALL_CAPACITY);
	aux_tcache = seed % 3 != 0;
	aux_start(history);
	for (unsigned int h = 0; h < HEAPS; h++)
		heaps[h] = aux_heap(h == 2, h == 1 ? GM_KIND_POOL : GM_KIND_DEVICE, h == 1 ? 0 : 1,
				    h ? "" : "garbage_collection_threshold:0.6",
				    h ? GM_HEAP_UNLIMITED : UINT64_C(80) << 20);
	for (unsigned int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .number = i, .seed = seed + i };
		workers[i].own = aux_heap(0, GM_KIND_DEVICE, 100 + i, "", GM_HEAP_UNLIMITED);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		AUX_MUST(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
}

/* ---- what a copy says ---- */

#define PLACES 65536u
struct place { uint64_t address, size; uint32_t state; };
struct places { struct place at[PLACES]; };

/* The place of @address, or one where it can go: what is nothing any more is used again. */
static struct place *find(struct places *places, uint64_t address)
{
	uint64_t i = address * UINT64_C(0x9e3779b97f4a7c15) >> 40;
	struct place *free_place = NULL;

	for (unsigned int n = 0; n < PLACES; n++, i++) {
		struct place *place = &places->at[i % PLACES];

		if (place->address == address)
			return place;
		if (!free_place && place->state == NOTHING)
			free_place = place;
		if (!place->address)
			break;
	}
	ck_assert_ptr_nonnull(free_place);
	return free_place;
}

static struct place *add(struct places *places, uint64_t address)
{
	struct place *place = find(places, address);

	place->address = address;
	return place;
}

/* Blocks begin at 512, so 1 byte beside them are the segments'. */
#define SEGMENT_AT(address) ((address) + 1)

static void play(struct places *places, const struct gm_event *event)
{
	bool segment = event->action == GM_ACTION_SEGMENT_ALLOC ||
		       event->action == GM_ACTION_SEGMENT_FREE;
	struct place *place = add(places, segment ? SEGMENT_AT(event->address) : event->address);

	switch (event->action) {
	case GM_ACTION_ALLOC:
	case GM_ACTION_SEGMENT_ALLOC:
		ck_assert_uint_eq(place->state, NOTHING);
		place->size = event->size;
		place->state = LIVE;
		break;
	case GM_ACTION_FREE_REQUESTED:
		ck_assert_uint_eq(place->state, LIVE);
		ck_assert_uint_eq(place->size, event->size);
		place->state = PENDING;
		break;
	default:
		ck_assert_uint_eq(place->state, segment ? LIVE : PENDING);
		ck_assert_uint_eq(place->size, event->size);
		place->state = NOTHING;
	}
}

/* The trace from its beginning ends in the tables. Returns blocks that live or wait. */
static unsigned int compare(const struct gm_copy *copy, struct places *tables)
{
	static struct places trace;
	unsigned int in_trace = 0, in_tables = 0;

	memset(&trace, 0, sizeof(trace));
	memset(tables, 0, sizeof(*tables));
	for (size_t i = 0; i < copy->event_count; i++)
		play(&trace, copy->events[i]);
	for (size_t i = 0; i < copy->segment_count; i++) {
		const struct gm_segment *segment = gm_copy_segment(copy, copy->segments[i]);
		struct gm_block_walk walk = { 0 };
		uint32_t id = GM_NONE;

		ck_assert_uint_eq(find(&trace, SEGMENT_AT(segment->address))->state, LIVE);
		ck_assert_uint_eq(find(&trace, SEGMENT_AT(segment->address))->size, segment->size);
		in_tables++;
		while ((id = gm_copy_next_block(copy, copy->segments[i], id, &walk))) {
			const struct gm_block *block = gm_copy_block(copy, id);
			struct place *place = find(&trace, block->address);
			bool live = block->state == GM_BLOCK_ACTIVE ||
				    block->state == GM_BLOCK_FREEING;

			if (block->state == GM_BLOCK_INACTIVE) {
				ck_assert_uint_eq(place->state, NOTHING);
				continue;
			}
			ck_assert_uint_eq(place->state, live ? LIVE : PENDING);
			ck_assert_uint_eq(place->size, block->requested);
			*add(tables, block->address) = *place;
			in_tables++;
		}
	}
	for (unsigned int i = 0; i < PLACES; i++)
		in_trace += trace.at[i].state != NOTHING;
	ck_assert_uint_eq(in_trace, in_tables);
	return in_tables - (unsigned int)copy->segment_count;
}

static void complain(void *arg, const char *what, uint64_t where)
{
	static unsigned int said;

	(void)arg;
	if (said++ < 10)
		printf("# violation: %s at %#llx\n", what, (unsigned long long)where);
	fflush(stdout);
}

/* A copy that could not get every lock in time, and whose tables changed meanwhile, says so: its sums may differ. */
static void settle(struct gm_copy *copy)
{
	ck_assert_int_eq(gm_copy_resolve(copy, UINT64_MAX), 0);
	if (copy->consistent) {
		ck_assert_int_eq(gm_copy_check(copy, complain, NULL), 0);
		ck_assert_uint_eq(copy->damage, 0);
	}
	ck_assert_uint_le(copy->flight_count, THREADS);
}

/* Every copy taken meanwhile is one moment; with so little history, of what there is of it. */
START_TEST(every_live_copy_is_one_moment)
{
	/* Each of a whole trace takes longer than the one before, so the trace is kept short. */
	unsigned int copies = (unsigned int)aux_effort(_i % 2 ? COPIES : COPIES / 5), whole = 0;
	unsigned int hurried = 0;	/* copies that show more than one moment, and are taken again */
	unsigned int seed = 20251120 + (unsigned int)_i;
	static struct places tables;
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	begin_shared();
	if (!(_i % 2))
		shared->allowed = STEPS;
	run_workers(threads, workers, seed, _i % 2 ? 16 * 63 : 4194304);
	for (unsigned int i = 0; i < THREADS; i++)	/* a loaded machine starts them late */
		for (int wait = 0; wait < 60000 && shared->threads[i].steps <= 100; wait++)
			usleep(1000);
	for (unsigned int i = 0; i < copies; i++) {
		struct gm_copy copy;

		if (!(_i % 2))		/* enough for all of the copy */
			shared->allowed += STEPS;
		ck_assert_int_eq(gm_copy_from_process(&copy), 0);
		settle(&copy);
		if (!copy.consistent) {		/* on a busy machine, a holder of a lock was off its processor */
			ck_assert_uint_lt(hurried++, 20 * copies);
			i--;
		} else if (!copy.dropped_total) {
			compare(&copy, &tables);
			whole++;
		}
		gm_copy_free(&copy);
		gm_recorder_tick();
	}
	shared->stop = true;
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(workers[i].errors, 0);
		ck_assert_uint_gt(shared->threads[i].steps, 100);
	}
	ck_assert(whole || _i % 2);
	for (unsigned int h = 0; h < HEAPS; h++)
		ck_assert_int_eq(gm_cache_heap_check(heaps[h]), 0);
	aux_sound();
	printf("# %u copies, %u with their whole trace, %u taken again\n", copies, whole, hurried);
}
END_TEST

static bool is_busy(unsigned int thread, unsigned int cell)
{
	bool busy = shared->threads[thread].busy == ALL_OWN && cell < OWN;

	for (unsigned int t = 0; t < THREADS; t++)
		busy = busy || shared->threads[t].busy == thread * CELLS + cell + 1;
	return busy;
}

/* What had returned is there; of what had not, one operation a thread may be either way. */
static void compare_with_the_dead(struct places *tables, unsigned int found)
{
	unsigned int known = 0, open = 0;

	for (unsigned int t = 0; t < THREADS; t++) {
		struct thread *thread = &shared->threads[t];

		for (unsigned int cell = 0; cell < CELLS; cell++) {
			const struct held *held = &thread->held[cell];
			const struct place *place;

			if (is_busy(t, cell)) {
				open++;
				continue;
			}
			if (!held->address)
				continue;
			place = find(tables, held->address);
			ck_assert_uint_eq(place->state, held->state);
			ck_assert_uint_eq(place->size, held->requested);
			known++;
		}
	}
	ck_assert_uint_ge(found, known);
	ck_assert_uint_le(found, known + open);
}

static void live_and_be_killed(int ready, unsigned int seed)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	run_workers(threads, workers, seed, 4194304);
	if (write(ready, aux_report.path, sizeof(aux_report.path)) < 0)
		_exit(1);
	for (;;)
		pause();
}

START_TEST(killed_at_any_moment)
{
	unsigned int seed = (unsigned int)test_seed() + (unsigned int)_i;
	unsigned int kills = (unsigned int)aux_effort(KILLS), undone = 0, flights = 0;
	static struct places tables;

	for (unsigned int i = 0; i < kills; i++) {
		struct timespec wait = { 0, 1000000 + rand_r(&seed) % 8000000 };
		char path[sizeof(aux_report.path)];
		struct gm_copy copy;
		int pipes[2], fd, status;
		pid_t child;

		begin_shared();
		ck_assert_int_eq(pipe(pipes), 0);
		child = fork();
		if (!child)
			live_and_be_killed(pipes[1], seed);
		ck_assert_int_eq(read(pipes[0], path, sizeof(path)), sizeof(path));
		nanosleep(&wait, NULL);
		kill(child, SIGKILL);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		ck_assert_msg(fd >= 0, "%s", path);
		ck_assert_int_eq(gm_copy_from_file(&copy, fd), 0);
		ck_assert(copy.consistent);
		settle(&copy);
		ck_assert_uint_eq(copy.dropped_total, 0);
		compare_with_the_dead(&tables, compare(&copy, &tables));
		undone += (unsigned int)copy.undone;
		flights += (unsigned int)copy.flight_count;
		gm_copy_free(&copy);
		close(fd);
		unlink(path);
		close(pipes[0]);
		close(pipes[1]);
		munmap(shared, sizeof(*shared));
	}
	printf("# %u kills: %u changes undone, %u operations in flight\n", kills, undone, flights);
}
END_TEST

/* ---- one instruction at a time ---- */

/* Each sort of change once: cuts, merges on either side, growth, what waits, giving back, the end. */
static void every_change(struct gm_cache_heap *heap)
{
	static const uint64_t bytes[] = { 700, 512, 4000, 1536, 3 << 20, 25 << 20 };
	uint64_t address[6];
	uint32_t block[6];

	for (unsigned int i = 0; i < 6; i++) {
		struct gm_alloc alloc = aux_request(bytes[i], 1, (uint16_t)(1 + i % 2));

		aux_serve(heap, &alloc, &block[i]);
		address[i] = alloc.address;
	}
	aux_release(heap, block[1], address[1], true);
	aux_release(heap, block[3], address[3], false);
	aux_release(heap, block[2], address[2], true);
	aux_complete(heap, block[3]);
	aux_release(heap, block[5], address[5], true);
	gm_cache_heap_empty(heap, UINT64_MAX);
	gm_cache_heap_drop(heap, 0, GM_NONE);
}

/* The same size again and again: cached, handed out for less, flushed for another size, counted, in
 * two domains. */
static void every_hit(struct gm_cache_heap *heap, struct gm_cache_heap *other)
{
	struct gm_alloc alloc;
	uint32_t block[3];
	uint64_t address[3];
	struct gm_stats stats;

	for (unsigned int round = 0; round < 4; round++) {
		for (unsigned int i = 0; i < 3; i++) {
			alloc = aux_request(4096 - 40 * round, 1, 1);
			aux_serve(i == 2 ? other : heap, &alloc, &block[i]);
			address[i] = alloc.address;
		}
		for (unsigned int i = 0; i < 3; i++)
			aux_release(i == 2 ? other : heap, block[i], address[i],
				    round != 2 || i != 1);
		if (round == 2)
			aux_complete(heap, block[1]);
	}
	alloc = aux_request(9000, 1, 2);
	aux_serve(heap, &alloc, &block[0]);
	aux_release(heap, block[0], alloc.address, true);
	gm_record_stats(0, &stats);
	alloc = aux_request(9000, 1, 2);
	aux_serve(heap, &alloc, &block[0]);
	aux_release(heap, block[0], alloc.address, true);
	gm_cache_heap_drop(other, 0, GM_NONE);
}

static void be_stepped(int ready, bool thread_cache)
{
	struct gm_cache_heap *heap, *other;

	aux_tcache = thread_cache;
	aux_driver_begin(UINT64_MAX);
	aux_start(16 * 63);
	heap = aux_heap(0, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
	other = aux_heap(1, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
	if (write(ready, aux_report.path, sizeof(aux_report.path)) < 0 ||
	    ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(1);
	raise(SIGSTOP);
	if (thread_cache)
		every_hit(heap, other);
	every_change(heap);
	raise(SIGSTOP);
	_exit(0);
}

static void check_stopped(int fd)
{
	static struct places tables;
	struct gm_copy copy;

	ck_assert_int_eq(gm_copy_from_file(&copy, fd), 0);
	settle(&copy);
	ck_assert_uint_eq(copy.dropped_total, 0);
	compare(&copy, &tables);
	gm_copy_free(&copy);
}

/* Whatever the instruction that a program dies at, its journal shows one moment. */
START_TEST(stopped_at_every_instruction)
{
	unsigned long steps = 0, checked = 0, stride = aux_effort(1) > 1 ? 1 : 23;
	unsigned long phase = test_seed() % stride;
	char path[sizeof(aux_report.path)];
	int pipes[2], fd, status;
	pid_t child;

	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	if (!child)
		be_stepped(pipes[1], _i != 0);
	ck_assert_int_eq(read(pipes[0], path, sizeof(path)), sizeof(path));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	for (;; steps++) {
		ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(WIFSTOPPED(status), "step %lu: %#x", steps, status);
		if (WSTOPSIG(status) != SIGTRAP)
			break;
		if (steps % stride == phase) {
			check_stopped(fd);
			checked++;
		}
	}
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	close(fd);
	printf("# %lu instructions, %lu copies (one in %lu from %lu)\n", steps, checked, stride,
	       phase);
	ck_assert_uint_gt(checked, 500);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cached_moments");
	TCase *tcase = tcase_create("cached_moments");

	tcase_add_unchecked_fixture(tcase, aux_directory_make, aux_directory_remove);
	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, every_live_copy_is_one_moment, 0, 4);
	tcase_add_loop_test(tcase, killed_at_any_moment, 0, 3);
	if (!SANITIZED)
		tcase_add_loop_test(tcase, stopped_at_every_instruction, 0, 2);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
