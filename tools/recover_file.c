/*
 * recover_file.c - one journal made into a snapshot, or all those of a directory: see recover.h.
 *
 * A journal is removed only after its snapshot lies on the disk, and only while its name still
 * names the file that was read. One thread, no signal context.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/image.h"
#include "recorder/names.h"
#include "recorder/snapshot.h"
#include "tools/recover.h"

#define OUTPUT "gpumem.%c.%p.%r.json"

struct gm_recover_how gm_recover_how;

static struct gm_image image;		/* of the last journal: @ret points into it */
static char texts[3][4096];		/* journal, snapshot, error */
static char command[sizeof(((struct gm_header *)0)->command) + 1];

static int fail(struct gm_recovered *ret, int error, const char *why)
{
	snprintf(texts[2], sizeof(texts[2]), "%s", why);
	ret->error = texts[2];
	return error;
}

static void describe(struct gm_recovered *ret)
{
	const struct gm_header *header = image.header;

	memcpy(command, header->command, sizeof(header->command));
	ret->pid = header->pid;
	ret->rank = header->rank;
	ret->signal = header->crash_signal ? gm_signal_name(header->crash_signal) : NULL;
	ret->in_flight = (unsigned int)image.flight_count;
	ret->flights = image.flights;
	for (unsigned int d = 0; d < GM_MAX_DEVICES; d++) {
		const struct gm_domain *domain = gm_image_domain(&image, d);
		const struct gm_stat *stat;

		if (!domain)
			break;
		stat = &domain->stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL];
		ret->live_bytes += (uint64_t)stat->current;
		ret->peak_bytes += (uint64_t)stat->peak;
		ret->live_blocks += (uint64_t)
			domain->stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL].current;
	}
}

/* Of a living process only who it is: its journal is not ours to read whole. */
static int describe_living(int fd, struct gm_recovered *ret)
{
	ret->alive = true;
	if (pread(fd, &ret->pid, sizeof(ret->pid), offsetof(struct gm_header, pid)) < 0 ||
	    pread(fd, command, sizeof(command) - 1, offsetof(struct gm_header, command)) < 0)
		return fail(ret, -errno, strerror(errno));
	return 0;
}

/* Did the process ever allocate, or try to? */
static bool was_used(void)
{
	if (gm_image_items(&image, GM_REGION_SEGMENTS) > 1 || image.event_count || image.flight_count)
		return true;
	for (size_t i = 0; i < gm_image_items(&image, GM_REGION_FAILURES); i++)
		if (gm_image_failure(&image, i)->number)
			return true;
	return false;
}

/* On the disk, and its name as well: the journal may go. */
static int make_safe(const char *path)
{
	char directory[4096], *slash;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;

	if (fd < 0 || fsync(fd))
		r = -errno;
	if (fd >= 0)
		close(fd);
	snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (r || !slash)
		return r;
	slash[slash == directory] = '\0';
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);		/* some file systems cannot, and keep the name all the same */
		close(fd);
	}
	return 0;
}

/* Has the process itself written the snapshot of its crash, and is it still there? */
static bool was_written(struct gm_recovered *ret)
{
	const struct gm_header *header = image.header;
	struct stat st;

	if (!header->crash_written || header->last_snapshot[sizeof(header->last_snapshot) - 1] ||
	    stat(header->last_snapshot, &st) || !S_ISREG(st.st_mode) || !st.st_size ||
	    header->crash_written != GM_CRASH_WRITTEN(st.st_ino))
		return false;
	memcpy(texts[1], header->last_snapshot, sizeof(header->last_snapshot));
	ret->snapshot = texts[1];
	ret->written = true;
	return true;
}

static void remove_journal(const char *path, const struct stat *st, struct gm_recovered *ret)
{
	struct stat now;

	if (!lstat(path, &now) && now.st_dev == st->st_dev && now.st_ino == st->st_ino &&
	    !unlink(path))
		ret->removed = true;
}

static int write_snapshot(struct gm_recovered *ret)
{
	const struct gm_snapshot_request request = { .reason = "recovered", .recovered = true };
	const char *template = gm_recover_how.output ? gm_recover_how.output : getenv("GPUMEM_OUTPUT");
	int r = gm_snapshot_write(&image, &request, template && *template ? template : OUTPUT, 0, ".",
				  texts[1], sizeof(texts[1]));

	if (!r)
		r = make_safe(texts[1]);
	if (r) {
		snprintf(texts[2], sizeof(texts[2]), "the snapshot could not be written: %s",
			 strerror(-r));
		ret->error = texts[2];
		return r;
	}
	ret->snapshot = texts[1];
	return 0;
}

static int recover_open(int fd, const char *path, const struct stat *st, bool keep,
			struct gm_recovered *ret)
{
	int alive = gm_image_alive(fd), r;

	if (alive == 1)
		return describe_living(fd, ret);
	r = gm_image_copy_file(&image, fd);
	if (!r)
		r = gm_image_settle(&image, UINT64_MAX);
	if (r)
		return fail(ret, r, image.error[0] ? image.error : strerror(-r));
	describe(ret);
	if (alive < 0 && !gm_recover_how.force)
		return fail(ret, alive, "it cannot be told from here whether its process lives "
			    "(another pid namespace?); --force takes it for dead");
	if (!was_used()) {
		ret->unused = true;
	} else if (!was_written(ret)) {
		r = write_snapshot(ret);
		if (r)
			return r;
	}
	if (!keep)
		remove_journal(path, st, ret);
	return 0;
}

int gm_recover_file(const char *path, bool keep, struct gm_recovered *ret)
{
	struct stat st;
	int fd, r;

	gm_image_free(&image);
	command[0] = '\0';
	snprintf(texts[0], sizeof(texts[0]), "%s", path);
	*ret = (struct gm_recovered){ .journal = texts[0], .snapshot = "", .error = "",
				      .command = command, .rank = -1 };
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return fail(ret, -errno, strerror(errno));
	r = fstat(fd, &st) ? fail(ret, -errno, strerror(errno)) :
		recover_open(fd, path, &st, keep, ret);
	close(fd);
	return r;
}

static bool is_journal(const char *name)
{
	size_t length = strlen(name);

	return length > 8 && !strcmp(name + length - 8, ".journal");
}

/* gpumem-<uid>: the directory that the library makes for its journals. */
static bool is_ours(const char *name)
{
	size_t digits = strncmp(name, "gpumem-", 7) ? 0 : strspn(name + 7, "0123456789");

	return digits && !name[7 + digits];
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_real_directory(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode);
}

/* Where processes may begin a journal at any time a directory stays, even an empty one. */
static bool is_shared_place(const char *path)
{
	const char *const shared[] = { "/dev/shm", "/tmp", getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR") };

	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
		if (shared[i] && !strcmp(shared[i], path))
			return true;
	return false;
}

/* Is the journal at @path one of the process that the user asked for? */
static bool is_asked_for(const char *path)
{
	int64_t pid = 0;
	int fd;

	if (!gm_recover_how.pid)
		return true;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return false;
	if (pread(fd, &pid, sizeof(pid), offsetof(struct gm_header, pid)) != (ssize_t)sizeof(pid))
		pid = 0;
	close(fd);
	return pid == gm_recover_how.pid;
}

struct walk {
	bool keep, below;
	void (*each)(void *arg, const struct gm_recovered *one);
	void *arg;
	int found;
};

static int walk_directory(const char *directory, struct walk *walk);

static void walk_entry(const char *directory, const char *name, struct walk *walk)
{
	struct walk inner = *walk;
	struct gm_recovered one;
	char *path;

	if (asprintf(&path, "%s/%s", directory, name) < 0)
		return;
	if (is_journal(name) && is_asked_for(path)) {
		gm_recover_file(path, walk->keep, &one);
		walk->each(walk->arg, &one);
		walk->found++;
	} else if (!walk->below && is_ours(name) && is_real_directory(path)) {
		inner.below = true;
		if (walk_directory(path, &inner) >= 0)
			walk->found = inner.found;
		if (!is_shared_place(directory))
			rmdir(path);		/* if nothing is left in it */
	}
	free(path);
}

static int walk_directory(const char *directory, struct walk *walk)
{
	struct dirent **entries = NULL;
	int count = scandir(directory, &entries, NULL, by_name);

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		walk_entry(directory, entries[i]->d_name, walk);
		free(entries[i]);
	}
	free(entries);
	return walk->found;
}

int gm_recover_directory(const char *directory, bool keep,
			 void (*each)(void *arg, const struct gm_recovered *one), void *arg)
{
	struct walk walk = { .keep = keep, .each = each, .arg = arg };

	return walk_directory(directory, &walk);
}
