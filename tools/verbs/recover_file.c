/*
 * recover_file.c - make a snapshot of one journal, or of all journals of a directory: see recover.h.
 *
 * A journal is removed only after its snapshot is on the disk, and only if its name still names the file that was read.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/modules/names.h"
#include "recorder/snapshot/snapshot.h"
#include "tools/read/places.h"
#include "tools/verbs/recover.h"

#define OUTPUT "gpumem.%c.%p.%r.json"

static struct gm_copy copy;		/* of the last journal; results point into it */
static char texts[3][4096];		/* journal, snapshot, error */
static char command[sizeof(((struct gm_header *)0)->command) + 1];

static int fail(struct gm_recovered *ret, int error, const char *why)
{
	snprintf(texts[2], sizeof(texts[2]), "%s", why);
	ret->error = texts[2];
	return error;
}

/* Return the newest failure for which the process made no snapshot; NULL: none. */
static const struct gm_failure *newest_failure(void)
{
	const struct gm_failure *newest = NULL;

	for (size_t i = 0; i < gm_copy_items(&copy, GM_REGION_FAILURES); i++) {
		const struct gm_failure *one = gm_copy_failure(&copy, i);

		if (one->number > (newest ? newest->number : copy.header->failure_shown))
			newest = one;
	}
	return newest;
}

static void describe(struct gm_recovered *ret)
{
	const struct gm_header *header = copy.header;

	memcpy(command, header->command, sizeof(header->command));
	ret->pid = header->pid;
	ret->rank = header->rank;
	ret->signal = header->crash_signal ? gm_signal_name(header->crash_signal) : NULL;
	ret->in_flight = (unsigned int)copy.flight_count;
	ret->flights = copy.flights;
	ret->failure = newest_failure();
	ret->refused = gm_copy_refused(&copy, GM_REGION_SEGMENTS) + gm_copy_refused(&copy, GM_REGION_BLOCKS) +
		       gm_copy_refused(&copy, GM_REGION_LIVES);
	for (unsigned int d = 0; d < GM_MAX_DEVICES; d++) {
		const struct gm_domain *domain = gm_copy_domain(&copy, d);
		const struct gm_stat *stat;

		if (!domain)
			break;
		stat = &domain->stats.stat[GM_STAT_REQUESTED_BYTES][GM_POOL_ALL];
		ret->live_bytes += (uint64_t)stat->current;
		ret->peak_bytes += (uint64_t)stat->peak;
		ret->live_blocks += (uint64_t)
			domain->stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL].current;
	}
	for (uint32_t id = 1; id < gm_copy_items(&copy, GM_REGION_BLOCKS); id++) {
		const struct gm_block *block = gm_copy_block(&copy, id);

		/* The program freed the block, but the requested bytes still count it (PyTorch's rule). */
		if (block && block->state == GM_BLOCK_PENDING && block->domain < GM_MAX_DEVICES)
			ret->live_bytes -= block->requested < ret->live_bytes ? block->requested : ret->live_bytes;
	}
}

/* Read only the identity of a living process, because its journal is not ours to read whole. */
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
	if (gm_copy_items(&copy, GM_REGION_SEGMENTS) > 1 || copy.event_count || copy.flight_count)
		return true;
	for (size_t i = 0; i < gm_copy_items(&copy, GM_REGION_FAILURES); i++)
		if (gm_copy_failure(&copy, i)->number)
			return true;
	return false;
}

/* Bring the snapshot @path and its name to the disk, so that the journal may be removed. Returns 0 or -errno. */
static int make_safe(const char *path)
{
	char directory[4096], *slash;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), r = 0;

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
		fsync(fd);		/* some file systems refuse, and keep the name all the same */
		close(fd);
	}
	return 0;
}

/* Set @ret->snapshot to the newest snapshot that the process itself wrote. Returns false if that is gone. */
static bool name_last(struct gm_recovered *ret, struct stat *ret_st)
{
	const struct gm_header *header = copy.header;

	if (header->last_snapshot[sizeof(header->last_snapshot) - 1] ||
	    stat(header->last_snapshot, ret_st) || !S_ISREG(ret_st->st_mode) || !ret_st->st_size)
		return false;
	memcpy(texts[1], header->last_snapshot, sizeof(header->last_snapshot));
	ret->snapshot = texts[1];
	return true;
}

/* Has the process itself written the snapshot of its crash, and is it still there? */
static bool was_written(struct gm_recovered *ret)
{
	struct stat st;

	ret->written = copy.header->crash_written && name_last(ret, &st) &&
		       copy.header->crash_written == GM_CRASH_WRITTEN(st.st_ino);
	if (!ret->written)
		ret->snapshot = "";
	return ret->written;
}

/* A journal: its open directory, and its name there. */
struct entry { int directory; const char *name; };

static void remove_journal(const struct entry *entry, const struct stat *st,
			   struct gm_recovered *ret)
{
	struct stat now;

	if (!fstatat(entry->directory, entry->name, &now, AT_SYMLINK_NOFOLLOW) &&
	    now.st_dev == st->st_dev && now.st_ino == st->st_ino &&
	    !unlinkat(entry->directory, entry->name, 0))
		ret->removed = true;
}

static int write_snapshot(const struct gm_recover_for *of, struct gm_recovered *ret)
{
	const struct gm_snapshot_request request = {
		.reason = "recovered",
		.recovered = true,
		.failure = ret->failure && !ret->signal ? ret->failure->number : 0,
	};
	const char *template = of->output ? of->output : getenv("GPUMEM_OUTPUT");
	int r = gm_snapshot_write(&copy, &request, template && *template ? template : OUTPUT, 0, ".",
				  texts[1], sizeof(texts[1]));

	if (!r)
		r = make_safe(texts[1]);
	if (r) {
		if (r == -EBADMSG)
			snprintf(texts[2], sizeof(texts[2]), "damaged: its snapshot would be out of all proportion");
		else
			snprintf(texts[2], sizeof(texts[2]), "the snapshot could not be written to %.3900s: %s",
				 texts[1], strerror(-r));
		ret->error = texts[2];
		return r;
	}
	ret->snapshot = texts[1];
	return 0;
}

static int recover_open(int fd, const struct entry *entry, const struct stat *st,
			const struct gm_recover_for *of, struct gm_recovered *ret)
{
	int alive = gm_copy_alive(fd), r;

	if (alive == 1)
		return describe_living(fd, ret);
	r = gm_copy_from_file(&copy, fd);
	if (!r)
		r = gm_copy_resolve(&copy, UINT64_MAX);
	if (r)
		return fail(ret, r, copy.error[0] ? copy.error : strerror(-r));
	describe(ret);
	if (alive < 0 && !of->force)
		return fail(ret, alive, "nothing here says whether its process lives "
			    "(another pid namespace?); --force takes it for dead");
	if (copy.header->life == GM_LIFE_CLEAN) {
		ret->clean = true;	/* its snapshots are written; as another user it could not remove its journal */
		name_last(ret, &(struct stat){ 0 });
	} else if (!was_used()) {
		ret->unused = true;
	} else if (!was_written(ret) && !of->list) {
		r = write_snapshot(of, ret);
		if (r)
			return r;
	}
	if (!of->keep && !of->list)
		remove_journal(entry, st, ret);
	return 0;
}

/* Open a journal, and refuse a link: whoever put the link there must not choose which file is read or removed. */
static int open_entry(const struct entry *entry)
{
	int fd = openat(entry->directory, entry->name,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int recover_entry(const struct entry *entry, const char *path, const struct gm_recover_for *of,
			 struct gm_recovered *ret)
{
	struct stat st;
	int fd, r;

	gm_copy_free(&copy);
	command[0] = '\0';
	snprintf(texts[0], sizeof(texts[0]), "%s", path);
	*ret = (struct gm_recovered){ .journal = texts[0], .snapshot = "", .error = "",
				      .command = command, .rank = -1 };
	fd = entry->directory < 0 && entry->directory != AT_FDCWD ? entry->directory :
		open_entry(entry);
	if (fd < 0)
		return fail(ret, fd, fd == -ELOOP ? "a symbolic link: name what it leads to" :
			    strerror(-fd));
	r = fstat(fd, &st) ? fail(ret, -errno, strerror(errno)) :
		recover_open(fd, entry, &st, of, ret);
	close(fd);
	return r;
}

int gm_recover_file(const char *path, const struct gm_recover_for *of, struct gm_recovered *ret)
{
	const char *slash = strrchr(path, '/');
	struct entry entry = { AT_FDCWD, slash ? slash + 1 : path };
	char *directory = slash ? strndup(path, (size_t)(slash - path + 1)) : NULL;
	int r;

	if (slash)
		entry.directory = directory ? gm_places_open(directory, O_PATH) : -ENOMEM;
	r = recover_entry(&entry, path, of, ret);
	if (entry.directory >= 0)
		close(entry.directory);
	free(directory);
	return r;
}

/* Is the journal of the process that the user asked for? */
static bool is_asked_for(const struct entry *entry, const struct gm_recover_for *of)
{
	int64_t pid = 0;
	int fd;

	if (!of->pid)
		return true;
	fd = open_entry(entry);
	if (fd < 0)
		return false;
	if (pread(fd, &pid, sizeof(pid), offsetof(struct gm_header, pid)) != (ssize_t)sizeof(pid))
		pid = 0;
	close(fd);
	return pid == of->pid;
}

int gm_recover_in(int directory, const char *path, const struct gm_recover_for *of)
{
	struct dirent **entries = NULL;
	int count = scandirat(directory, ".", &entries, NULL, alphasort), found = 0;

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		const struct entry entry = { directory, entries[i]->d_name };
		struct gm_recovered one;
		char *whole;

		if (!fnmatch("?*.journal", entry.name, 0) && is_asked_for(&entry, of) &&
		    asprintf(&whole, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/",
			     entry.name) >= 0) {
			recover_entry(&entry, whole, of, &one);
			of->each(of->arg, &one);
			found++;
			free(whole);
		}
		free(entries[i]);
	}
	free(entries);
	return found;
}

struct below { const struct gm_recover_for *of; bool stays; };

static void recover_below(const struct gm_place_visit *place)
{
	const struct below *below = place->arg;

	gm_recover_in(place->fd, place->path, below->of);
	if (!below->stays)
		unlinkat(place->parent, place->name, AT_REMOVEDIR);	/* if it is empty */
}

int gm_recover_below(int directory, const char *path, bool anybody, const struct gm_recover_for *of)
{
	/* Where processes may begin a journal at any time, even an empty directory stays. */
	struct below below = { of, of->list || gm_places_shared(directory) };

	return gm_places_below(directory, path, anybody, recover_below, &below);
}
