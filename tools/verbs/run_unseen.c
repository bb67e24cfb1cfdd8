/*
 * run_unseen.c - why gpumem run records nothing of a program: see run_unseen.h.
 *
 * The loader must ignore LD_PRELOAD in set-user-ID programs, and static programs have no loader; sudo, env -i and the
 * like remove LD_PRELOAD. What the command itself shows is said at the end of a run that recorded nothing. What its
 * children do can be seen only while they live.
 */
#define _GNU_SOURCE
#include "tools/verbs/run_unseen.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/read/attach.h"
#include "tools/show/show.h"

#define HEAD_BYTES 4096u		/* of a file: ELF header and program headers, or the #! line */
#define FIRST_MS 1000			/* the first look; each later pause is twice as long, */
#define MOST_MS 64000			/* up to this */
#define MAPS_LINES 20000u		/* lines of /proc/PID/maps that are read */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

/* ---- the command ------------------------------------------------------------------------------- */

/* Open the file that execvp would run; -1: there is none. */
static int open_command(const char *word)
{
	const char *path = getenv("PATH");
	char copy[PATH_MAX], file[2 * PATH_MAX], *rest = copy, *directory;

	if (strchr(word, '/'))
		return open(word, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	snprintf(copy, sizeof(copy), "%s", path ? path : "/bin:/usr/bin");
	while ((directory = strsep(&rest, ":"))) {
		snprintf(file, sizeof(file), "%s/%s", directory[0] ? directory : ".", word);
		if (!access(file, X_OK))
			return open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	}
	return -1;
}

/* Does the kernel start the file with other rights than ours? Then the loader ignores LD_PRELOAD. */
static bool is_privileged(int fd, const struct stat *st)
{
	return (st->st_mode & S_ISUID && st->st_uid != getuid()) || (st->st_mode & S_ISGID && st->st_gid != getgid()) ||
	       (geteuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

/* Has an ELF file a loader? @head: its first @bytes. */
static bool has_loader(const char *head, size_t bytes)
{
	Elf64_Ehdr elf;
	Elf64_Phdr part;

	memcpy(&elf, head, sizeof(elf));
	for (unsigned int i = 0; i < elf.e_phnum; i++) {
		uint64_t at = elf.e_phoff + (uint64_t)i * sizeof(part);

		if (elf.e_phentsize != sizeof(part) || at > bytes || bytes - at < sizeof(part))
			return true;		/* not known */
		memcpy(&part, head + at, sizeof(part));
		if (part.p_type == PT_INTERP)
			return true;
	}
	return false;
}

/* Return why the library cannot be preloaded into the file @word; NULL: no reason is seen. @depth: how many
 * interpreters of scripts to follow. */
static const char *judge_file(const char *word, int depth)
{
	char head[HEAD_BYTES + 1] = "", *interpreter;
	int fd = open_command(word);
	const char *why = NULL;
	Elf64_Ehdr elf;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return NULL;
	n = pread(fd, head, HEAD_BYTES, 0);
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && n > 0 && is_privileged(fd, &st))
		why = "runs with rights of its own (set-user-ID or alike), and the loader then ignores LD_PRELOAD";
	close(fd);
	if (why)
		return why;
	memcpy(&elf, head, sizeof(elf));
	if (!memcmp(head, "#!", 2) && depth) {
		interpreter = head + 2 + strspn(head + 2, " \t");
		interpreter[strcspn(interpreter, " \t\n")] = '\0';
		return judge_file(interpreter, depth - 1);
	}
	if (n < (ssize_t)sizeof(elf) || memcmp(head, ELFMAG, SELFMAG))
		return NULL;
	if (head[EI_CLASS] != ELFCLASS64 || elf.e_machine != MACHINE)
		return "is built for another processor, or for 32 bits, and this library is not";
	return has_loader(head, (size_t)n) ? NULL : "is linked statically, and nothing can be preloaded into it";
}

/* Return what a known launcher, such as sudo, does with LD_PRELOAD; NULL: @command is none. */
static const char *judge_words(char *const *command)
{
	static const struct { const char *names, *why; } known[] = {
		{ " sudo doas su runuser pkexec ",
		  "starts programs without LD_PRELOAD: put it in front, as in sudo gpumem run -- ./app" },
		{ " ssh docker podman kubectl nerdctl ", "starts programs elsewhere: use gpumem run there" },
	};
	const char *slash = strrchr(command[0], '/'), *name = slash ? slash + 1 : command[0];
	char word[64];

	snprintf(word, sizeof(word), " %.60s ", name);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strstr(known[i].names, word))
			return known[i].why;
	if (strcmp(name, "env"))
		return NULL;
	for (char *const *at = command + 1; *at && **at == '-'; at++)
		if (!strcmp(*at, "-") || !strcmp(*at, "-i") || !strcmp(*at, "--ignore-environment"))
			return "clears the environment, LD_PRELOAD with it: put gpumem run behind it, as in env -i "
			       "gpumem run -- ./app";
	return NULL;
}

bool gm_run_suspect(char *const *command, char *ret, size_t bytes)
{
	const char *why = judge_words(command);

	if (!why)
		why = judge_file(command[0], 1);
	snprintf(ret, bytes, "%s%s%s", why ? gm_show_clean(command[0]) : "", why ? " " : "", why ? why : "");
	return why != NULL;
}

/* ---- its processes ----------------------------------------------------------------------------- */

struct family { pid_t list[GM_RUN_PROCESSES]; size_t count; };

static void add(struct family *family, pid_t pid)
{
	if (family->count < GM_RUN_PROCESSES)
		family->list[family->count++] = pid;
}

/* Add the children of @pid; the kernel has a list for each of its threads. */
static void add_children(struct family *family, pid_t pid)
{
	struct dirent *entry;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		char name[PATH_MAX];
		long child;
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "task/%.32s/children", entry->d_name);
		file = gm_attach_proc(pid, name);
		while (file && fscanf(file, "%ld", &child) == 1)
			add(family, (pid_t)child);
		if (file)
			fclose(file);
	}
	if (tasks)
		closedir(tasks);
}

/* Has @pid mapped the CUDA driver, and has it mapped this library? */
static void look_at(pid_t pid, bool *ret_driver, bool *ret_library)
{
	FILE *maps = gm_attach_proc(pid, "maps");
	char *line = NULL;
	size_t room = 0;

	*ret_driver = *ret_library = false;
	for (unsigned int i = 0; maps && i < MAPS_LINES && !*ret_library && getline(&line, &room, maps) > 0; i++) {
		const char *name = strrchr(line, '/');

		*ret_driver |= name && !strncmp(name, "/libcuda.so", 11);
		*ret_library |= name && !strncmp(name, "/libgpumem.so", 13);
	}
	free(line);
	if (maps)
		fclose(maps);
}

/* Was @pid started with this library in LD_PRELOAD? False also if its environment cannot be read. */
static bool has_preload(pid_t pid)
{
	FILE *file = gm_attach_proc(pid, "environ");
	char *pair = NULL;
	size_t room = 0;
	bool found = false;

	while (file && !found && getdelim(&pair, &room, '\0', file) > 0)
		found = !strncmp(pair, "LD_PRELOAD=", 11) && strstr(pair, "libgpumem");
	free(pair);
	if (file)
		fclose(file);
	return found;
}

static void say_unseen(pid_t pid)
{
	char command[64] = "?";
	FILE *file = gm_attach_proc(pid, "comm");

	if (file && fgets(command, sizeof(command), file))
		command[strcspn(command, "\n")] = '\0';
	if (file)
		fclose(file);
	fprintf(stderr, "gpumem: process %ld (%s) uses CUDA and is not recorded: %s\n", (long)pid,
		gm_show_clean(command), has_preload(pid) ? "the loader did not take LD_PRELOAD" :
		"it was started without LD_PRELOAD (see gpumem help run)");
}

int64_t gm_run_look(struct gm_run_watch *watch, pid_t child, int64_t now_ms)
{
	struct family family = { .count = 0 };

	if (!watch->pause_ms) {
		watch->pause_ms = FIRST_MS;
		watch->next_ms = now_ms + FIRST_MS;
	}
	if (now_ms < watch->next_ms)
		return watch->next_ms - now_ms;
	add(&family, child);
	for (size_t i = 0; i < family.count; i++) {
		bool driver, library, done = false;

		add_children(&family, family.list[i]);
		for (size_t k = 0; k < watch->count && !done; k++)
			done = watch->done[k] == family.list[i];
		if (done)
			continue;
		look_at(family.list[i], &driver, &library);
		if (driver && !library && watch->count < GM_RUN_PROCESSES)
			say_unseen(family.list[i]);
		if (driver && watch->count < GM_RUN_PROCESSES)
			watch->done[watch->count++] = family.list[i];
	}
	watch->pause_ms = watch->pause_ms * 2 > MOST_MS ? MOST_MS : watch->pause_ms * 2;
	watch->next_ms = now_ms + watch->pause_ms;
	return watch->pause_ms;
}
