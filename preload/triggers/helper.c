/*
 * helper.c - the helper thread, which holds the sign of life, keeps the clock and writes every snapshot, so
 * that no thread of the program has to; and the names thread, which names frames.
 *
 * The names thread reads the files of modules. Such a read may hang while the server of a mount is away. So
 * nothing but names depends on this thread: a snapshot is written with the names that are known.
 *
 * The helper thread must never keep a process alive. A program whose main thread calls pthread_exit ends
 * when its last thread ends, and the helper counts as a thread. So once a second the helper checks whether
 * the main thread has ended. It ends, together with the names thread, when no other thread is left. Without
 * /proc, where the other threads cannot be counted, it ends as soon as the main thread has ended.
 *
 * Thread context: gm_helper_start in the first hook; helper() and namer() are the threads;
 * gm_names_catch_up in whichever thread writes a snapshot. Signal context: none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/cache/cache.h"
#include "preload/process/say.h"
#include "preload/process/state.h"
#include "preload/triggers/control.h"
#include "preload/triggers/trigger.h"
#include "recorder/journal/recorder.h"
#include "recorder/modules/elf_file.h"
#include "recorder/modules/symbols.h"

#define STACK_BYTES (256u << 10)
#define TICK_NS 1000000000		/* between checks of the clock, dead threads and the main thread */
#define EXPOSED_NS UINT64_C(500000000)	/* how long the journal must stay exposed before it is removed */
#define TURN_LEAST_NS 1000000
#define ALONE_NS 20000000		/* between checks once the main thread has ended */
/* Naming new frames takes at most a tenth of one processor, in short slices with pauses. A low priority would not
 * do: it could not be raised again for a snapshot, and a hook that needs the lock for interning would wait for a
 * thread that does not run. */
#define NAMES_NS 5000000
#define PAUSE_NS 45000000
#define NAMES_SLICES 20u		/* slices of a wait for names, each a tenth of the allowed time */
#define LOCK_NS UINT64_C(100000000)	/* wait for locks that an interrupted thread may hold */
#define END_SLICES 50u			/* slices of ALONE_NS in which the names thread must end */
#define WRITE_NS UINT64_C(10000000000)	/* wait for a snapshot that another thread is writing */

enum { NAMER_NONE, NAMER_RUNS, NAMER_TO_END, NAMER_ENDED };	/* gm_state.namer */

/* The word in which the kernel stores 0 when the main thread exits (NULL: unknown), and the process that this is
 * true for, because a forked child has another main thread. Written once, when the library is loaded. */
static const int *main_thread_id;
static pid_t main_thread_owner;

void gm_helper_loaded(void)
{
#ifdef PR_GET_TID_ADDRESS
	int *address = NULL;

	if (prctl(PR_GET_TID_ADDRESS, &address, 0, 0, 0) == 0) {
		main_thread_id = address;
		main_thread_owner = getpid();
	}
#endif
}

/* Return the state letter of the main thread: 'Z' once it has exited while other threads run on. */
static char main_thread_state(void)
{
	char text[512];
	ssize_t n;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	const char *end;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	end = strrchr(text, ')');	/* the name of the command may contain anything */
	return end && end[1] == ' ' ? end[2] : 0;
}

static bool main_thread_known(void)
{
	return main_thread_id && main_thread_owner == getpid();
}

static bool namer_runs(void)
{
	uint32_t state = gm_get_acquire(&gm_state.namer);

	return state == NAMER_RUNS || state == NAMER_TO_END;
}

/* Have all threads of the program ended? If the threads cannot be counted: has the main thread ended? */
static bool is_alone(void)
{
	struct stat st;

	if (main_thread_known() && __atomic_load_n(main_thread_id, __ATOMIC_ACQUIRE) != 0)
		return false;
	if (stat("/proc/self/task", &st) != 0)
		return main_thread_known();
	/* The links are ".", "..", the main thread (which stays as a zombie) and our threads. */
	return st.st_nlink <= (namer_runs() ? 5 : 4) && main_thread_state() == 'Z';
}

/* Can is_alone give an answer at all? */
static bool can_tell(void)
{
	return main_thread_known() || access("/proc/self/task", F_OK) == 0;
}

/* ---- the names thread --------------------------------------------------------------------------- */

static void *namer(void *none)
{
	bool more;

	prctl(PR_SET_NAME, "gpumem-names", 0, 0, 0);
	while (gm_get_acquire(&gm_state.namer) == NAMER_RUNS) {
		uint32_t number = gm_get_acquire(&gm_state.names_asked);
		uint64_t limit = atomic_exchange(&gm_state.names_ns, 0);

		more = gm_recorder_can_intern(NAMES_NS) && gm_symbols_work(limit ? limit : NAMES_NS);
		gm_set_release(&gm_state.names_done, number);
		gm_trigger_wake(&gm_state.names_done);
		gm_trigger_sleep(&gm_state.names_asked, number, more ? PAUSE_NS : TICK_NS);
	}
	gm_set_release(&gm_state.namer, NAMER_ENDED);
	gm_trigger_wake(&gm_state.namer);
	return none;
}

static uint32_t wake_namer(void)
{
	uint32_t number = atomic_fetch_add(&gm_state.names_asked, 1) + 1;

	gm_trigger_wake(&gm_state.names_asked);
	return number;
}

/* End the names thread. Returns false when it hangs in a call. */
static bool end_namer(void)
{
	uint32_t runs = NAMER_RUNS;

	if (atomic_compare_exchange_strong(&gm_state.namer, &runs, NAMER_TO_END))
		wake_namer();
	for (unsigned int i = 0; i < END_SLICES && namer_runs(); i++)
		gm_trigger_sleep(&gm_state.namer, NAMER_TO_END, ALONE_NS);
	return !namer_runs();
}

void gm_names_catch_up(uint64_t limit_ns)
{
	uint32_t number, done = gm_get_acquire(&gm_state.names_done);

	if (gm_get_acquire(&gm_state.namer) == NAMER_NONE && gm_recorder_can_intern(LOCK_NS))
		gm_symbols_work(limit_ns);
	if (gm_get_acquire(&gm_state.namer) != NAMER_RUNS)
		return;
	atomic_store(&gm_state.names_ns, limit_ns);
	number = wake_namer();
	/* The names thread has not answered since the last wait failed: do not wait again. */
	if (done != number - 1)
		return;
	for (unsigned int i = 0; i < NAMES_SLICES && !gm_elf_files_stopped(); i++) {
		done = gm_get_acquire(&gm_state.names_done);
		if (done == number)
			break;
		gm_trigger_sleep(&gm_state.names_done, done, limit_ns / (NAMES_SLICES / 2));
	}
}

/* ---- the helper thread -------------------------------------------------------------------------- */

static void copied(void *arg)
{
	struct gm_header *header = gm_recorder_header();

	gm_set_release(&header->copied, *(const uint32_t *)arg);
	gm_trigger_wake(&header->copied);
}

/* Serve all requests up to @number. */
static void serve(struct gm_header *header, uint32_t number)
{
	uint32_t reasons = atomic_exchange(&gm_state.reasons, 0);

	if (atomic_exchange(&header->request_reason, GM_REQUEST_NONE) == GM_REQUEST_OUTSIDE)
		reasons |= 1u << GM_REQUEST_OUTSIDE;
	if (reasons)
		gm_snap_take(reasons, WRITE_NS, copied, &number);
	copied(&number);
	gm_set_release(&header->answered, number);
	gm_trigger_wake(&header->answered);
	gm_control_serve(&header->control);
}

/* Count the operations that all other threads have begun. If the count has not changed, nothing has happened. */
static uint64_t operations(const struct gm_header *header)
{
	const struct gm_region *region = &header->regions[GM_REGION_THREADS];
	uint64_t used = gm_get_acquire(&region->used);
	const char *at = (const char *)header + region->offset;
	uint64_t sum = 0;

	for (uint64_t i = 0; i + sizeof(struct gm_thread) <= used; i += sizeof(struct gm_thread)) {
		const struct gm_thread *thread = (const void *)(at + i);

		if (gm_get(&thread->tid) != gm_get(&gm_state.helper))
			sum += gm_get(&thread->operations);
	}
	return sum;
}

/* ---- giving back memory that nobody uses: turns of the cache ---- */

/* End the turns. exit() calls this before the exit handlers that the driver registered earlier, because none of
 * our driver calls may be under way when the driver shuts down. */
static void end_turns(void)
{
	if (!gm_state_is_mine())
		return;
	gm_state.turns_ended = 1;
	for (unsigned int i = 0; i < END_SLICES && gm_state.turning; i++)
		gm_nap(ALONE_NS);
}

/* Return the time between turns in nanoseconds; UINT64_MAX: there are no turns. */
static uint64_t turn_ns(void)
{
	double ns = gm_state.options.idle_time * TICK_NS;

	return !gm_cache_on() || ns <= 0 ? UINT64_MAX : ns < TURN_LEAST_NS ? TURN_LEAST_NS : (uint64_t)ns;
}

static void take_turn(const struct gm_header *header)
{
	static bool registered;

	if (!registered)
		atexit(end_turns);
	registered = true;
	gm_state.turning = 1;
	if (!gm_state.exiting && !gm_state.turns_ended && gm_get_acquire(&header->life) == GM_LIFE_RUNNING) {
		/* Mark this thread as inside a hook, so that driver calls that come back to our exported names
		 * pass through. */
		gm_inside = (uintptr_t)__builtin_frame_address(0);
		gm_cache_turn();
		gm_inside = 0;
	}
	gm_state.turning = 0;
}

static void unlink_journal(void *none)
{
	(void)none;
	gm_recorder_unlink();
}

/* Remove the journal once it has been exposed for EXPOSED_NS. Not sooner, because a daemon that drops root
 * privileges step by step is briefly not dumpable while it still is root, and must keep its journal. @since: when
 * the journal was found exposed; 0: it was not. Returns the new @since. */
static uint64_t hide_journal(uint64_t since)
{
	if (!gm_recorder_exposed())
		return 0;
	if (!since)
		return gm_now_ns();
	if (gm_now_ns() - since > EXPOSED_NS)
		gm_with_own_files(unlink_journal, NULL);
	return since;
}

/* Print each fault of the journal, once. */
static void say_faults(void)
{
	static bool said_lost, said_short;

	if (gm_recorder_is_lost() && !said_lost) {
		said_lost = true;
		gm_say("the journal was cut short by somebody: nothing is recorded from here "
		       "on, and nothing is served from the cache");
	}
	if (gm_recorder_is_short() && !said_short) {
		said_short = true;
		gm_say("the journal has no room for all that is allocated (its file system is "
		       "full, or its memory at its limit): snapshots may miss some of it");
	}
}

static void *helper(void *arg)
{
	struct gm_header *header = arg;
	uint64_t seen = 0, now, next = 0, owed, wait, exposed = 0, turn = 0;
	bool ended;
	uint32_t number;

	prctl(PR_SET_NAME, "gpumem", 0, 0, 0);
	gm_set_release(&gm_state.helper, (uint32_t)syscall(SYS_gettid));
	gm_control_begin(&header->control);
	gm_recorder_hold_alive();
	for (;;) {
		number = gm_get_acquire(&header->request);
		if (number != gm_get_acquire(&header->answered)) {
			serve(header, number);
			continue;
		}
		owed = gm_get_acquire(&header->life) == GM_LIFE_CRASHED ? UINT64_MAX : gm_oom_owed_ns();
		if (!owed) {
			gm_snap_take(1u << GM_REQUEST_OOM, WRITE_NS, NULL, NULL);
			continue;
		}
		if (is_alone())
			break;
		say_faults();
		wait = main_thread_known() && !*main_thread_id ? ALONE_NS : TICK_NS;
		wait = turn_ns() < wait ? turn_ns() : wait;
		gm_recorder_keep_up();
		gm_trigger_sleep(&header->request, number, wait < owed ? wait : owed);
		/* Serve requests first, because the asking thread waits, and may even hold locks if it is in
		 * _exit. */
		if (gm_get_acquire(&header->request) != number ||
		    gm_get_acquire(&header->life) == GM_LIFE_CRASHED)
			continue;
		if (turn_ns() != UINT64_MAX && gm_now_ns() >= turn) {
			take_turn(header);
			turn = gm_now_ns() + turn_ns();
		}
		if (gm_now_ns() < next)		/* woken only for gm_recorder_keep_up */
			continue;
		exposed = hide_journal(exposed);
		now = operations(header);
		if (now != seen)
			gm_recorder_tick();
		seen = now;
		next = gm_now_ns() + TICK_NS / 2;
	}
	/* This thread is about to become the last one of the process, and glibc makes the last thread call exit().
	 * The names thread must not be the last, because it may hang. */
	gm_names_catch_up(GM_NAMES_EXIT_NS);
	ended = end_namer();
	gm_set_release(&header->has_helper, 0);
	gm_set_release(&gm_state.helper, 0);
	if (!ended && main_thread_state() == 'Z')
		exit(0);
	return NULL;
}

/* Create a detached thread. Its stack must also have room for the thread-local storage of the program, which may
 * be large: try larger stacks. */
static int create(void *(*fn)(void *arg), void *arg)
{
	static const size_t sizes[] = { STACK_BYTES, 4 * STACK_BYTES, 0 };
	pthread_attr_t attributes;
	pthread_t thread;
	int r = EAGAIN;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (pthread_attr_init(&attributes))
			return -ENOMEM;
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
		if (sizes[i])
			pthread_attr_setstacksize(&attributes, sizes[i]);
		r = pthread_create(&thread, &attributes, fn, arg);
		pthread_attr_destroy(&attributes);
		if (r != EINVAL)
			break;
	}
	return -r;
}

int gm_helper_start(void)
{
	struct gm_header *header = gm_recorder_header();
	sigset_t all, before;
	int r;

	if (!header)
		return -ENODATA;
	if (!can_tell())
		return -ENOSYS;
	/* pthread_sigmask does not block the signals that glibc keeps for itself. They must stay unblocked,
	 * because setuid() in a threaded program waits until every thread has answered one of them. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);	/* for a truncated journal: crash.c */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	gm_set_release(&gm_state.helper, UINT32_MAX);
	/* Create the names thread first, because the helper counts it. If that fails, the thread that writes a
	 * snapshot finds the names. */
	gm_set_release(&gm_state.namer, NAMER_RUNS);
	if (create(namer, NULL))
		gm_set_release(&gm_state.namer, NAMER_NONE);
	r = create(helper, header);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r) {
		gm_set_release(&gm_state.helper, 0);
		end_namer();
	}
	return r;
}
