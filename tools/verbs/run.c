/*
 * run.c - gpumem run [options] -- COMMAND: launch a program under the library and stay its parent.
 *
 * Every option of the library is a flag here (preload/options/options.def). The command runs in the same process group,
 * so signals of a terminal reach it by themselves; a signal that was sent to this process alone (see the signal probe)
 * is passed on. When the command has ended, snapshots are made of the journals that it and its children left, and all
 * snapshots are listed (run_table.c). The exit status is the command's own, death by a signal included.
 *
 * One thread. Signals are read by sigtimedwait (in the probe by sigwaitinfo), never by handlers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder/journal/format.h"
#include "recorder/journal/sweep.h"
#include "tools/verbs/arguments.h"
#include "tools/show/show.h"
#include "tools/verbs/run_table.h"
#include "tools/verbs/run_unseen.h"

/* Find the library: the file @named, else beside this program, where the build or the installation put it. Returns 0 or
 * -errno. */
static int find_library(const char *named, char *ret, size_t bytes)
{
	static const char *const beside[] = {
		"libgpumem.so", "../lib/libgpumem.so", "../lib64/libgpumem.so",
		"../lib/x86_64-linux-gnu/libgpumem.so", "../lib/aarch64-linux-gnu/libgpumem.so"
	};
	char self[PATH_MAX], candidate[2 * PATH_MAX], real[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (named) {
		if (!realpath(named, real))
			return -errno;
		snprintf(ret, bytes, "%s", real);
		return 0;
	}
	if (n < 0)
		return -errno;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		snprintf(candidate, sizeof(candidate), "%s/%s", self, beside[i]);
		if (realpath(candidate, real)) {
			snprintf(ret, bytes, "%s", real);
			return 0;
		}
	}
	return -ENOENT;
}

/* Make a directory in @place that is locked as long as we live, because gpumem recover takes an unlocked room for that
 * of a dead run. The room gets its name after it is locked. Returns the room's descriptor, or -errno. */
static int make_room_in(const char *place, char *ret, size_t bytes)
{
	const mode_t before = umask(077);
	char made[PATH_MAX];
	struct stat st;
	int fd, r;

	snprintf(made, sizeof(made), "%s/." GM_RUN_ROOM "XXXXXX", place);
	r = mkdtemp(made) ? 0 : -errno;
	umask(before);
	if (r)
		return r;
	snprintf(ret, bytes, "%s/%s", place, strrchr(made, '/') + 2);
	fd = open(made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || st.st_uid != geteuid()) {	/* somebody replaced it */
		r = -EPERM;
	} else {
		flock(fd, LOCK_EX | LOCK_NB);		/* a file system may have no locks */
		r = rename(made, ret) ? -errno : 0;
	}
	if (!r)
		return fd;
	if (fd >= 0)
		close(fd);
	rmdir(made);
	return r;
}

/* Make a directory for the journals of this run: in @wanted (NULL: none), else in memory if there is room.
 * Remove old journals there first (gm_sweep). Returns the room's descriptor, or -errno. */
static int make_room(const char *wanted, char *ret, size_t bytes)
{
	const char *places[] = {
		wanted, "/dev/shm", getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char own[PATH_MAX];
		struct statfs fs;
		int fd;

		if (!places[i] || places[i][0] != '/')
			continue;
		snprintf(own, sizeof(own), "%s/gpumem-%lu", places[i], (unsigned long)geteuid());
		gm_sweep(own);
		if (statfs(places[i], &fs) ||
		    (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < (8u << 20))
			continue;
		fd = make_room_in(places[i], ret, bytes);
		if (fd >= 0)
			return fd;
	}
	ret[0] = '\0';
	return -ENOSPC;
}

/* Choose where the journals go. GPUMEM_JOURNAL stays as it is if it names a file, a directory that cannot be used, or
 * the room of an outer gpumem run. Returns the room's descriptor, or -errno if there is no room. */
static int choose_room(char *ret, size_t bytes)
{
	const char *place = getenv("GPUMEM_JOURNAL");
	char wanted[PATH_MAX];
	struct stat st;
	int fd;

	ret[0] = '\0';
	if (place && *place && (strstr(place, "/" GM_RUN_ROOM) || !realpath(place, wanted) ||
				stat(wanted, &st) || !S_ISDIR(st.st_mode) || access(wanted, W_OK)))
		return -ENOENT;
	fd = make_room(place && *place ? wanted : NULL, ret, bytes);
	if (fd >= 0)
		setenv("GPUMEM_JOURNAL", ret, 1);
	return fd;
}

/* Remove the mark "@PID" that an outer program under follow=no has put at the end of @variable. Returns 0 or
 * -ENOMEM. */
static int unmark(const char *variable)
{
	const char *old = getenv(variable), *at = old ? strrchr(old, '@') : NULL;
	char *value;
	int r;

	if (!at || at[1 + strspn(at + 1, "0123456789")])
		return 0;
	value = strndup(old, (size_t)(at - old));
	r = value && !setenv(variable, value, 1) ? 0 : -ENOMEM;
	free(value);
	return r;
}

/* Put our library first in LD_PRELOAD, before what the user preloads. This command is recorded even if an outer program
 * runs under follow=no. Returns 0 or -errno. */
static int preload(const char *library)
{
	const char *old = getenv("LD_PRELOAD");
	char *value;
	int r;

	if (unmark("GPUMEM_FOLLOW") || unmark("GPUMEM_CONF"))
		return -ENOMEM;
	if (!old || !*old)
		return setenv("LD_PRELOAD", library, 1) ? -errno : 0;
	if (asprintf(&value, "%s:%s", library, old) < 0)
		return -ENOMEM;
	r = setenv("LD_PRELOAD", value, 1) ? -errno : 0;
	free(value);
	return r;
}

/* ---- the signal probe --------------------------------------------------------------------------
 *
 * kill(-GROUP), and programs that signal every process of a job (mpirun, slurmstepd, timeout), reach the command,
 * too. If such a signal were passed on, it would come twice, which many programs take for an order to abort at once.
 * A signal does not say to whom else it was sent. So the probe, a process of the same group and parent, waits beside
 * the command and reports the signals that it gets.
 */

#define WAIT_MS 200			/* for the probe's report: one loop of one sender signals both */
#define FILES 64			/* descriptors that gpumem run may have open */
#define OLD_MS 1000			/* an older report is of another signal */

struct probe { pid_t pid; int reports; };
struct report { int32_t number; pid_t sender; int64_t when_ms; };

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Run the probe. The probe dies with its parent, but a moment later, so it closes what others wait for: our output, and
 * the lock of the run's room. */
static void __attribute__((noreturn)) probe_run(int said, pid_t parent)
{
	bool every = false;
	sigset_t all;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "gpumem-signals");
	if (getppid() != parent)
		_exit(0);
	if (dup2(said, 0) < 0)
		_exit(0);
#ifdef SYS_close_range
	every = syscall(SYS_close_range, 1u, ~0u, 0u) == 0;
#endif
	if (!every)			/* before Linux 5.9 */
		for (int fd = 1; fd < FILES; fd++)
			close(fd);
	sigfillset(&all);
	for (;;) {
		struct report report = { 0 };
		siginfo_t info;

		if (sigwaitinfo(&all, &info) < 0)
			continue;
		report = (struct report){ info.si_signo, info.si_pid, now_ms() };
		if (write(0, &report, sizeof(report)) < 0 && errno != EAGAIN)
			_exit(0);
	}
}

/* End the probe, and wait for it. */
static void probe_end(struct probe *probe)
{
	if (probe->pid > 0) {
		kill(probe->pid, SIGKILL);
		waitpid(probe->pid, NULL, 0);
	}
	if (probe->reports >= 0)
		close(probe->reports);
	*probe = (struct probe){ .reports = -1 };
}

/* Start the probe. Without a probe (fork failed), every signal counts as sent to us alone. */
static void probe_start(struct probe *probe)
{
	pid_t parent = getpid();
	int ends[2];

	*probe = (struct probe){ .reports = -1 };
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return;
	probe->pid = fork();
	if (!probe->pid)
		probe_run(ends[1], parent);
	close(ends[1]);
	probe->reports = ends[0];
	if (probe->pid < 0)
		probe_end(probe);
}

/* Has the sender of @info sent the same signal to the probe? Wait up to WAIT_MS for the probe's report. */
static bool probe_saw(const struct probe *probe, const siginfo_t *info)
{
	int64_t began = now_ms(), remaining = WAIT_MS;
	struct report report;

	while (probe->reports >= 0 && remaining >= 0) {
		struct pollfd in = { .fd = probe->reports, .events = POLLIN };

		if (read(probe->reports, &report, sizeof(report)) == (ssize_t)sizeof(report)) {
			if (report.number == info->si_signo && report.sender == info->si_pid &&
			    report.when_ms >= began - OLD_MS)
				return true;
			continue;
		}
		if (poll(&in, 1, (int)remaining) <= 0 || in.revents & (POLLHUP | POLLERR))
			break;
		remaining = began + WAIT_MS - now_ms();
	}
	return false;
}

/* ---- the command ------------------------------------------------------------------------------ */

/* Wait for @child, and pass on signals that are sent to us alone. With @watch (NULL: without), look now and then for
 * processes that are not recorded. Returns the child's wait status. */
static int attend(pid_t child, const struct probe *probe, const sigset_t *taken, struct gm_run_watch *watch)
{
	for (;;) {
		int64_t pause_ms = watch ? gm_run_look(watch, child, now_ms()) : 0;
		const struct timespec pause = { pause_ms / 1000, pause_ms % 1000 * 1000000 };
		siginfo_t info;
		int number = sigtimedwait(taken, &info, watch ? &pause : NULL);
		int status;
		pid_t r;

		if (number < 0)
			continue;
		if (number != SIGCHLD) {
			/* A terminal's signal has reached the whole group already. */
			if (info.si_code != SI_KERNEL && !probe_saw(probe, &info))
				kill(child, number);
			continue;
		}
		while ((r = waitpid(child, &status, WNOHANG | WUNTRACED)) > 0) {
			if (!WIFSTOPPED(status))
				return status;
			/* The shell is to see us stopped, as it would see the command. */
			raise(SIGSTOP);
			kill(child, SIGCONT);
		}
		if (r < 0 && errno == ECHILD)
			return 0;
	}
}

/* Return the child's exit status, or die by the same signal, without a second core file. */
static int leave_as(int status)
{
	struct rlimit none = { 0, 0 };
	sigset_t one;

	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fflush(NULL);
	setrlimit(RLIMIT_CORE, &none);
	signal(WTERMSIG(status), SIG_DFL);
	sigemptyset(&one);
	sigaddset(&one, WTERMSIG(status));
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	raise(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}

/* Is there an executable @command where execvp looks for it? */
static bool is_there(const char *command)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];
	struct stat st;

	if (strchr(command, '/'))
		return !stat(command, &st) && S_ISREG(st.st_mode) && !access(command, X_OK);
	for (path = path ? path : "/bin:/usr/bin"; *command; path++) {
		int length = (int)strcspn(path, ":");

		if (snprintf(file, sizeof(file), "%.*s%s%s", length, path, length ? "/" : "./", command) <
		    (int)sizeof(file) && !stat(file, &st) && S_ISREG(st.st_mode) && !access(file, X_OK))
			return true;
		path += length;
		if (!*path)
			break;
	}
	return false;
}

/* If nothing was recorded, although journals would be in the room, say so, and why if the reason is known. */
static void say_nothing(char *const *command, const struct gm_run_table *table)
{
	char line[1240] = "gpumem: nothing was recorded: ";
	size_t head = strlen(line);

	if (table->count || !table->looked || (WIFEXITED(table->status) && WEXITSTATUS(table->status) >= 126))
		return;			/* from 126 on, the command could not be started */
	if (table->began && gm_library_options_no_snapshot())
		gm_run_say(gm_library_options_no_snapshot());
	else if (table->began)
		gm_run_say("gpumem: no snapshot: CUDA was called, but nothing was allocated");
	else if (gm_run_suspect(command, line + head, sizeof(line) - head))
		gm_run_say(line);
	else if (gm_library_options_follow_off())
		gm_run_say("gpumem: nothing was recorded: no CUDA call was seen in the command itself, and follow=no "
			   "leaves out the processes that it starts");
	else
		gm_run_say("gpumem: nothing was recorded: no CUDA call was seen "
			   "(gpumem help run says when that may be)");
}

static int launch(char **command, int room, const char *path, bool quiet)
{
	struct gm_run_table table = { .child = 0 };
	struct gm_run_watch watch = { .count = 0 };
	struct probe probe;
	sigset_t taken, before;
	pid_t child;
	char *line;
	int status;

	sigfillset(&taken);
	sigprocmask(SIG_BLOCK, &taken, &before);
	child = fork();
	if (child == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		if (!quiet && is_there(command[0]) &&
		    asprintf(&line, "gpumem: recording %s, process %ld", gm_show_clean(command[0]),
			     (long)getpid()) >= 0)
			gm_run_say(line);
		execvp(command[0], command);
		fprintf(stderr, "gpumem run: %s: %s\n", command[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	if (child < 0) {
		fprintf(stderr, "gpumem run: cannot start a process: %s\n", strerror(errno));
		status = GM_EXIT_FAILED << 8;
	} else {
		probe_start(&probe);
		status = attend(child, &probe, &taken, quiet ? NULL : &watch);
		probe_end(&probe);
	}
	table.child = child;
	table.status = status;
	if (room >= 0)
		gm_run_collect(&table, room, path);
	if (!quiet) {
		gm_run_print(&table);
		if (child > 0)
			say_nothing(command, &table);
	}
	gm_run_forget(&table);
	return leave_as(status);
}

/* Read -o TEMPLATE or -oTEMPLATE as the option --output. Returns 0 or -errno. */
static int take_output(int argc, char **argv, int *index)
{
	const char *value = argv[*index][2] ? argv[*index] + 2 : *index + 1 < argc ? argv[++*index] : NULL;
	char *word;
	int r, first = 0;

	if (!value) {
		fputs("gpumem run: -o needs a value\n", stderr);
		return -EINVAL;
	}
	if (asprintf(&word, "--output=%s", value) < 0)
		return -ENOMEM;
	r = gm_library_option_take(1, &word, &first);
	free(word);
	return r;
}

int gm_verb_run(int argc, char **argv)
{
	char library[PATH_MAX], path[PATH_MAX];
	const char *named = NULL;
	bool quiet = false;
	int i, r, room;

	for (i = 1; i < argc && argv[i][0] == '-'; i++) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
			gm_verb_print_help(stdout, gm_verb_find("run"));
			return GM_EXIT_OK;
		}
		if (!strcmp(argv[i], "-q") || !strcmp(argv[i], "--quiet"))
			quiet = true;
		else if (!strncmp(argv[i], "-o", 2)) {
			if (take_output(argc, argv, &i))
				return gm_usage_wrong("run");
		} else if (!strncmp(argv[i], "--library=", 10))
			named = argv[i] + 10;
		else if (!strcmp(argv[i], "--library") && i + 1 < argc)
			named = argv[++i];
		else if (gm_library_option_take(argc, argv, &i))
			return gm_usage_wrong("run");
	}
	if (gm_library_options_check())
		return gm_usage_wrong("run");
	if (i >= argc) {
		fputs("gpumem run: no command was given\n", stderr);
		return gm_usage_wrong("run");
	}
	r = find_library(named, library, sizeof(library));
	if (r) {
		fprintf(stderr, "gpumem run: no libgpumem.so %s: %s\n",
			named ? "there" : "beside gpumem or in ../lib", strerror(-r));
		return GM_EXIT_FAILED;
	}
	room = choose_room(path, sizeof(path));
	r = preload(library);
	if (r) {
		fprintf(stderr, "gpumem run: %s\n", strerror(-r));
		return GM_EXIT_FAILED;
	}
	return launch(argv + i, room, path, quiet);
}
