/*
 * ctl.c - gpumem ctl PID: change from outside what a living process records and what its cache holds. One thread.
 *
 * The command is left in the header of the process's journal. The process's helper thread carries the command out and
 * answers there: see recorder/journal/control.h. Only the header is mapped, and it is not trusted: each number is read
 * once, no text is read, every wait ends, and the file may become shorter at any moment (gm_attach_map).
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/heap.h"
#include "recorder/journal/format.h"
#include "recorder/modules/names.h"
#include "recorder/read/copy.h"
#include "tools/read/attach.h"
#include "tools/show/show.h"
#include "tools/verbs/arguments.h"

#define ANSWER_SECONDS 10.0		/* default of --timeout */
#define HELPER_SECONDS 2.0		/* to wait for the helper thread of a process that has just begun */
#define STOPPED_TURNS 10u		/* turns of a tenth of a second, after which a process counts as stopped */

#define STOPPED "it is stopped (SIGSTOP, or a debugger)"

/* A command for one process, and the answer. */
struct ask {
	int64_t pid;
	struct gm_attached of;
	struct gm_header *header;	/* mapped */
	double seconds, until;		/* the time limit, and its end by gm_show_now() */
	uint32_t command, device;
	uint64_t bytes;
	const char *why;		/* why no answer came */
	char late[96];			/* text of @why */
	struct gm_control answer;
};

static uint32_t load(const _Atomic(uint32_t) *word)
{
	return __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
}

static void nap(void)
{
	const struct timespec pause = { 0, 2000000 };

	nanosleep(&pause, NULL);
}

/* ---- may the process be asked? ---- */

/* Lock the command's bytes in the journal. The lock ends with the descriptor, so with this process. Kernels before 3.15
 * have only locks that end with any descriptor of the file, which makes no difference here. Returns 0 or -errno. */
static int lock_once(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET,
			      .l_start = offsetof(struct gm_header, control),
			      .l_len = sizeof(struct gm_control) };

	if (!fcntl(fd, F_OFD_SETLK, &lock))
		return 0;
	return errno == EINVAL && !fcntl(fd, F_SETLK, &lock) ? 0 : -errno;
}

/* Wait for the lock, because a process gets one command at a time. Returns false, and sets @why, if it stays taken. */
static bool take_turn(struct ask *ask)
{
	int r;

	while ((r = lock_once(ask->of.fd)) == -EAGAIN || r == -EACCES) {
		if (gm_show_now() > ask->until) {
			ask->why = "another gpumem ctl is waiting for it";
			return false;
		}
		nap();
	}
	if (r)
		ask->why = "its journal cannot be locked";
	return !r;
}

/* Set @why to "@what within N seconds". */
static void too_late(struct ask *ask, const char *what)
{
	snprintf(ask->late, sizeof(ask->late), "%s within %g second%s", what, ask->seconds,
		 ask->seconds == 1 ? "" : "s");
	ask->why = ask->late;
}

/* Return why the process will not answer; NULL: it may answer. */
static const char *judge(const struct ask *ask)
{
	const struct gm_header *header = ask->header;
	uint32_t version;
	double until = gm_show_now() + HELPER_SECONDS;

	if (header->version != GM_FORMAT_VERSION)
		return "its library is of another version than this gpumem";
	while (!load(&header->has_helper) && gm_show_now() < until && gm_show_now() < ask->until)
		nap();
	if (!load(&header->has_helper))
		return gm_attach_stopped(ask->pid) ? STOPPED : "it has no helper thread that could answer";
	version = load(&header->control.version);
	if (version < GM_CONTROL_VERSION)
		return "this process's library is older than gpumem ctl";
	return version > GM_CONTROL_VERSION ? "its library is newer than this gpumem" : NULL;
}

/* ---- asking ---- */

static bool swap(struct ask *ask, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n((uint32_t *)&ask->header->control.turn, &from, to, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Wait while the turn is @busy with the number of @turn. Returns false if the time is over, or if the process has
 * ended or is stopped (*@ret_stopped). */
static bool wait_while(struct ask *ask, uint32_t turn, uint32_t busy, bool *ret_stopped)
{
	unsigned int stopped = 0;

	for (unsigned int i = 1; load(&ask->header->control.turn) == ((turn & ~3u) | busy); i++) {
		if (gm_show_now() > ask->until)
			return false;
		if (i % 50 == 0) {
			stopped = gm_attach_stopped(ask->pid) ? stopped + 1 : 0;
			*ret_stopped = stopped >= STOPPED_TURNS;
			if (*ret_stopped || gm_copy_alive(ask->of.fd) == 0)
				return false;
		}
		nap();
	}
	return true;
}

/* Set @why after a wait that failed; @otherwise: for a process that lives and runs. */
static void explain(struct ask *ask, bool stopped, const char *otherwise)
{
	if (gm_copy_alive(ask->of.fd) == 0)
		ask->why = "it ended before it answered";
	else if (stopped)
		ask->why = STOPPED;
	else
		too_late(ask, otherwise);
}

/* Take back a command that a killed gpumem ctl has left, or wait for its end. Returns false, and sets @why, if that
 * fails. */
static bool clear(struct ask *ask, uint32_t *ret_turn)
{
	bool stopped = false;

	for (;;) {
		uint32_t turn = *ret_turn = load(&ask->header->control.turn);

		switch (turn & 3u) {
		case GM_CONTROL_IDLE:
		case GM_CONTROL_ANSWERED:
			return true;
		case GM_CONTROL_ASKED:
			swap(ask, turn, turn & ~3u);
			break;
		default:
			if (!wait_while(ask, turn, GM_CONTROL_BEGUN, &stopped)) {
				explain(ask, stopped, "it has not ended with an earlier command");
				return false;
			}
		}
		if (gm_show_now() > ask->until) {
			too_late(ask, "it gave no answer");
			return false;
		}
	}
}

/* Leave the command, and wait for the answer. Returns false, and sets @why, if none comes. */
static bool ask_helper(struct ask *ask)
{
	struct gm_control *control = &ask->header->control;
	bool stopped = false;
	uint32_t turn;

	if (!clear(ask, &turn))
		return false;
	turn = ((turn & ~3u) + GM_CONTROL_TURNS) | GM_CONTROL_ASKED;
	__atomic_store_n(&control->command, ask->command, __ATOMIC_RELAXED);
	__atomic_store_n(&control->device, ask->device, __ATOMIC_RELAXED);
	__atomic_store_n(&control->bytes, ask->bytes, __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)&control->turn, turn, __ATOMIC_RELEASE);
	__atomic_add_fetch((uint32_t *)&ask->header->request, 1, __ATOMIC_ACQ_REL);
	syscall(SYS_futex, (uint32_t *)&ask->header->request, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	wait_while(ask, turn, GM_CONTROL_ASKED, &stopped);
	if (swap(ask, turn, turn & ~3u)) {
		explain(ask, stopped, "it gave no answer");
		return false;
	}
	wait_while(ask, turn, GM_CONTROL_BEGUN, &stopped);
	memcpy(&ask->answer, control, sizeof(ask->answer));
	if (load(&control->turn) == ((turn & ~3u) | GM_CONTROL_ANSWERED))
		return true;
	explain(ask, stopped, "it has begun, and not ended");
	return false;
}

/* Get the answer. Refuse a journal that another process made, because a forked child has its parent's mapped. Returns
 * false, and sets @why, if no answer comes. */
static bool obtain(struct ask *ask)
{
	struct gm_header own;
	struct stat st;
	bool answered;

	if (!ask->of.writable || ask->of.owner == (uid_t)-1) {
		ask->why = "its journal is not of the user that it runs as";
		return false;
	}
	if (fstat(ask->of.fd, &st) || st.st_size < (off_t)GM_HEADER_BYTES ||
	    gm_header_read(ask->of.fd, &own) || !gm_copy_is_of(&own, ask->pid)) {
		ask->why = "the journal that it has mapped is another process's: ask the one that made it";
		return false;
	}
	ask->header = gm_attach_map(&ask->of, GM_HEADER_BYTES);
	if (!ask->header) {
		ask->why = "its journal cannot be mapped";
		return false;
	}
	ask->why = judge(ask);
	answered = !ask->why && take_turn(ask) && ask_helper(ask);
	if (gm_attach_was_cut()) {
		ask->why = "its journal was cut short";
		answered = false;
	}
	gm_attach_unmap();
	return answered;
}

/* ---- the answer ---- */

/* In the order of enum gm_history_enabled. */
static const struct { const char *word; uint32_t command; } histories[] = {
	{ "on", GM_CONTROL_HISTORY_ON }, { "state", GM_CONTROL_HISTORY_STATE },
	{ "off", GM_CONTROL_HISTORY_OFF },
};

static const char *history_word(uint32_t enabled)
{
	return enabled < GM_HISTORY_COUNT ? histories[enabled].word : "unknown";
}

static const char *limit_word(uint64_t limit)
{
	return limit == GM_HEAP_UNLIMITED ? "none" : gm_show_bytes((int64_t)(limit & INT64_MAX));
}

static const char *refusal(const struct ask *ask)
{
	switch (ask->answer.result) {	/* may be any number: another process wrote it */
	case -ENOTSUP:
		return ask->command == GM_CONTROL_MEMORY_LIMIT ?
		       "its allocator is native: every call goes to the driver, so nothing could be refused" :
		       "its option history is 0: there is no room for events";
	case -ENODEV:
		return "it has not used that device";
	case -ESHUTDOWN:
		return "it is ending";
	case -ENODATA:
		return "nothing is recorded in it any more";
	case -ETIMEDOUT:
		return "a lock was not free in time: it may have been done in part";
	default:
		return "it could not do that: its library may be older than this gpumem";
	}
}

static void print_device(uint32_t number, const struct gm_control_device *device)
{
	bool changed = device->limit != device->limit_before;

	printf("device %u: allocated %s, peak %s", number, gm_show_bytes((int64_t)device->allocated),
	       gm_show_bytes((int64_t)device->peak));
	if (device->peak != device->peak_before)
		printf(" (was %s)", gm_show_bytes((int64_t)device->peak_before));
	printf(", reserved %s", gm_show_bytes((int64_t)device->reserved));
	if (device->given_back)
		printf(" (%s given back)", gm_show_bytes((int64_t)device->given_back));
	printf(", limit %s", limit_word(device->limit));
	if (changed)
		printf(" (was %s)", limit_word(device->limit_before));
	else if (device->limited_by && device->limited_by < GM_LIMIT_COUNT)
		printf(" (%s)", gm_limit_name(device->limited_by));
	putchar('\n');
	if (changed && device->limit < device->reserved)
		gm_show_line(stdout, "  ", "device %u: more than the limit is reserved. The program keeps it, but gets "
			     "no new memory from the driver until enough of it was given back", number);
}

static void print_text(const struct ask *ask)
{
	const struct gm_control *answer = &ask->answer;

	printf("history: %s", history_word(answer->history));
	if (answer->history != answer->history_before)
		printf(" (was %s)", history_word(answer->history_before));
	printf("\nallocator: %s\n", answer->caching ? "caching" : "native, which caches nothing");
	for (uint32_t i = 0; i < GM_MAX_DEVICES; i++)
		if (answer->devices[i].used)
			print_device(i, &answer->devices[i]);
}

static json_t *bytes_of(uint64_t bytes)
{
	return gm_show_number(bytes != GM_HEAP_UNLIMITED, (int64_t)bytes);
}

static json_t *json_of(uint32_t number, const struct gm_control_device *device)
{
	return json_pack("{s:I,s:o,s:o,s:s,s:I,s:I,s:I,s:I,s:I}", "device", (json_int_t)number,
			 "limit_bytes", bytes_of(device->limit),
			 "limit_before_bytes", bytes_of(device->limit_before), "limited_by",
			 !device->limited_by || device->limited_by >= GM_LIMIT_COUNT ? "none" :
			 gm_limit_name(device->limited_by),
			 "allocated_bytes", (json_int_t)device->allocated,
			 "peak_bytes", (json_int_t)device->peak,
			 "peak_before_bytes", (json_int_t)device->peak_before,
			 "reserved_bytes", (json_int_t)device->reserved,
			 "given_back_bytes", (json_int_t)device->given_back);
}

static json_t *json_answer(const struct ask *ask)
{
	const struct gm_control *answer = &ask->answer;
	json_t *devices = json_array();

	for (uint32_t i = 0; i < GM_MAX_DEVICES; i++)
		if (answer->devices[i].used)
			json_array_append_new(devices, json_of(i, &answer->devices[i]));
	return json_pack("{s:I,s:s,s:s,s:s,s:o}", "pid", (json_int_t)ask->pid,
			 "history", history_word(answer->history),
			 "history_before", history_word(answer->history_before),
			 "allocator", answer->caching ? "caching" : "native", "devices", devices);
}

/* ---- the command line ---- */

static int wrong(const char *word, const char *why)
{
	fprintf(stderr, "gpumem ctl: '%s' %s\n", gm_show_clean(word), why);
	return gm_usage_wrong("ctl");
}

static int wrong_word(const char *word, const char *why, const char *words)
{
	char text[160];

	snprintf(text, sizeof(text), "%s%s", why, gm_did_you_mean(word, words));
	return wrong(word, text);
}

static int read_history(struct ask *ask, const char *value)
{
	if (value && ask->device != GM_CONTROL_ALL)
		return wrong("history", "is of all devices: leave --device out");
	for (size_t i = 0; value && i < GM_HISTORY_COUNT; i++)
		if (!strcmp(value, histories[i].word)) {
			ask->command = histories[i].command;
			return 0;
		}
	return value ? wrong_word(value, "is not on, off or state", "on off state") : 0;
}

/* Read the command from the words behind the PIDs; @words ends with NULL. Returns 0, or the exit status after a
 * message. */
static int read_command(struct ask *ask, char **words)
{
	const char *name = words[0] ? words[0] : "", *value = words[0] ? words[1] : NULL;

	ask->command = GM_CONTROL_SHOW;
	if (name[0] && strcmp(name, "history") && strcmp(name, "memory-limit") && strcmp(name, "reset-peaks") &&
	    strcmp(name, "empty-cache"))
		return wrong_word(name, "is not history, reset-peaks, empty-cache or memory-limit",
				  "history reset-peaks empty-cache memory-limit");
	if (value && words[2])
		return wrong(words[2], "is one word too many");
	if (!strcmp(name, "history"))
		return read_history(ask, value);
	if (!strcmp(name, "memory-limit")) {
		if (!value)
			return 0;
		ask->command = GM_CONTROL_MEMORY_LIMIT;
		ask->bytes = GM_HEAP_UNLIMITED;
		if (strcmp(value, "none") && gm_units_parse(value, &ask->bytes))
			return wrong(value, "is not a size, as 512MiB or 40GiB, or none");
	} else if (value) {
		return wrong(value, "is one word too many");
	} else if (!strcmp(name, "reset-peaks")) {
		ask->command = GM_CONTROL_RESET_PEAKS;
	} else if (!strcmp(name, "empty-cache")) {
		ask->command = GM_CONTROL_EMPTY_CACHE;
	}
	return 0;
}

static int say_no(const struct ask *ask, const char *why, int status)
{
	fprintf(stderr, "gpumem ctl: %" PRId64 ": %s\n", ask->pid, why);
	return status;
}

static int run(struct ask *ask)
{
	int r = gm_attach(ask->pid, &ask->of);
	bool answered;

	if (r)
		return say_no(ask, gm_attach_explain(ask->pid, r), GM_EXIT_INPUT);
	ask->until = gm_show_now() + ask->seconds;
	answered = obtain(ask);
	close(ask->of.fd);
	if (!answered)
		return say_no(ask, ask->why, GM_EXIT_INPUT);
	return ask->answer.result ? say_no(ask, refusal(ask), GM_EXIT_FAILED) : GM_EXIT_OK;
}

/* Give the command to @count processes in turn; an error of one does not stop the others. Returns the highest exit
 * status. */
static int run_all(const struct ask *ask, char **pids, int count, bool json)
{
	json_t *list = json ? json_array() : NULL, *shown = list;
	int status = GM_EXIT_OK;

	for (int i = 0; i < count; i++) {
		struct ask one = *ask;
		int s;

		one.pid = strtol(pids[i], NULL, 10);
		s = run(&one);
		status = s > status ? s : status;
		if (s)
			continue;
		if (json)
			json_array_append_new(list, json_answer(&one));
		else if (count > 1)
			printf("process %" PRId64 "\n", one.pid);
		if (!json)
			print_text(&one);
	}
	if (count == 1)
		shown = json_array_get(list, 0);
	if (shown)
		gm_show_document(stdout, json_incref(shown), 1);
	json_decref(list);
	return status;
}

/* Return how many of the first words are process ids: the first word, and all words after it that begin with a digit.
 * Returns -1 after a message if one of them is no process id. */
static int count_pids(char **words)
{
	int count = 0;

	do {
		char *end;

		if (strtol(words[count], &end, 10) <= 0 || *end) {
			wrong(words[count], "is not a process id");
			return -1;
		}
	} while (words[++count] && isdigit((unsigned char)words[count][0]));
	return count;
}

int gm_verb_ctl(int argc, char **argv)
{
	struct ask ask = { .device = GM_CONTROL_ALL, .seconds = ANSWER_SECONDS };
	const char *device = NULL;
	bool json = false;
	const struct gm_argument arguments[] = { { "device", GM_ARG_DEVICE, &device },
						 { "json", GM_ARG_FLAG, &json },
						 { "timeout", GM_ARG_TIME, &ask.seconds },
						 { NULL, 0, NULL } };
	int status = gm_arguments(argc, argv, arguments, 1, INT_MAX), count;

	if (status >= 0)
		return status;
	count = count_pids(argv + optind);
	if (count < 0)
		return GM_EXIT_USAGE;
	if (device) {
		long number = strtol(device, NULL, 10);

		if (number < 0 || number >= (long)GM_MAX_DEVICES)
			return gm_argument_wrong("ctl", "device", device, "there is no such device");
		ask.device = (uint32_t)number;
	}
	if (ask.seconds < 0)
		return wrong("--timeout", "is negative");
	status = read_command(&ask, argv + optind + count);
	if (status)
		return status;
	return gm_show_finish("ctl", run_all(&ask, argv + optind, count, json));
}
