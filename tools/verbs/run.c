/*
 * run.c - gpumem run [options] -- COMMAND: launch a program under the library and stay its parent.
 *
 * Every option of the library is a flag here (preload/options/options.def). The command runs in the same
 * process group, so a terminal's signals reach it by themselves; a signal sent to this process
 * alone (see the signal probe) is passed on. After any death the journals of the command and of its children
 * are made into snapshots, and all snapshots are listed (run_table.c); the exit status is the
 * command's own, death by signal included.
 *
 * One thread; signals are taken by sigwaitinfo, never by handlers.
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

/* The library beside this very program: where the build or the installation put it. */
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

/* A new directory in @place, locked as long as we live: gpumem recover takes an unlocked one for that of a
 * dead run. It gets its name once it is locked. Returns it, open, or -errno. */
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
	if (fd < 0 || fstat(fd, &st) || st.st_uid != geteuid()) {	/* somebody took it away */
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

/* A directory of this run's own for the journals: in @wanted, else in memory where there is some. The
 * remains of runs that were killed are removed there first. Returns it, open, or -errno. */
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

/* Where the journals go. GPUMEM_JOURNAL stays as it is where it names a file, or a directory that cannot
 * be used, or the room of a gpumem run around this one. Returns the room, open, or -errno: there is none. */
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

/* Our library first, whatever the user preloads besides. Under a program that hands nothing on
 * (follow:no, marked with its number) this one is asked for all the same. */
static int preload(const char *library)
{
	const char *old = getenv("LD_PRELOAD"), *follow = getenv("GPUMEM_FOLLOW");
	char *value;
	int r;

	if (follow && strchr(follow, '@')) {
		r = asprintf(&value, "%.*s", (int)strcspn(follow, "@"), follow);
		if (r < 0 || setenv("GPUMEM_FOLLOW", value, 1))
			return -ENOMEM;
		free(value);
	}
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
 * A signal does not say to whom else it was sent. So a process of the same group and parent waits beside the
 * command, and reports what it got.
 */

#define WAIT_MS 200			/* for its report: one loop of one sender signals both */
#define FILES 64			/* that gpumem run may have open */
#define OLD_MS 1000			/* an older report is of another signal */

struct probe { pid_t pid; int reports; };
struct word { int32_t number; pid_t sender; int64_t when_ms; };

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* It dies with its parent, but a moment later. So it closes what others wait for the end of: our output,
 * and the lock of the run's room. */
static void __attribute__((noreturn)) watch(int said, pid_t parent)
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
		struct word word = { 0 };
		siginfo_t info;

		if (sigwaitinfo(&all, &info) < 0)
			continue;
		word = (struct word){ info.si_signo, info.si_pid, now_ms() };
		if (write(0, &word, sizeof(word)) < 0 && errno != EAGAIN)
			_exit(0);
	}
}

/* It ends, and is waited for. */
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

/* Without it (no process to be had) every signal is taken for one to us alone. */
static void probe_start(struct probe *probe)
{
	pid_t parent = getpid();
	int ends[2];

	*probe = (struct probe){ .reports = -1 };
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return;
	probe->pid = fork();
	if (!probe->pid)
		watch(ends[1], parent);
	close(ends[1]);
	probe->reports = ends[0];
	if (probe->pid < 0)
		probe_end(probe);
}

/* Has what sent us @info sent it to the probe, too? Waits a moment for its word. */
static bool probe_saw(const struct probe *probe, const siginfo_t *info)
{
	int64_t began = now_ms(), remaining = WAIT_MS;
	struct word word;

	while (probe->reports >= 0 && remaining >= 0) {
		struct pollfd in = { .fd = probe->reports, .events = POLLIN };

		if (read(probe->reports, &word, sizeof(word)) == (ssize_t)sizeof(word)) {
			if (word.number == info->si_signo && word.sender == info->si_pid &&
			    word.when_ms >= began - OLD_MS)
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

/* Wait for @child, passing on what is sent to us alone, and with @watch look now and then for processes that are not
 * recorded. Returns its wait status. */
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
			/* The shell is to see us stopped as it would have seen the command. */
			raise(SIGSTOP);
			kill(child, SIGCONT);
		}
		if (r < 0 && errno == ECHILD)
			return 0;
	}
}

/* Die as the child died: by the same signal, but without a second core file. */
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

/* Is @command a program that may be started, where execvp looks for it? */
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

/* Was nothing recorded though its journals would be in the room? Then say so, and why if that can be told. */
static void say_nothing(char *const *command, const struct gm_run_table *table)
{
	char line[1240] = "gpumem: nothing was recorded: ";
	size_t head = strlen(line);

	if (table->count || !table->looked || (WIFEXITED(table->status) && WEXITSTATUS(table->status) >= 126))
		return;			/* from 126 on it could not be started */
	if (table->began && gm_library_options_unwanted())
		gm_run_say(gm_library_options_unwanted());
	else if (table->began)
		gm_run_say("gpumem: no snapshot: CUDA was called, but nothing was allocated");
	else if (gm_run_suspect(command, line + head, sizeof(line) - head))
		gm_run_say(line);
	else if (gm_library_options_alone())
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

/* -o TEMPLATE, or -oTEMPLATE: the option --output. */
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
