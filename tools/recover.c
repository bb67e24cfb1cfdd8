/*
 * recover.c - gpumem recover: journals of dead processes made into snapshots. See recover.h.
 *
 * A journal is only touched when its process is known to be dead; it goes away once its snapshot
 * lies safely under its name. The path of the snapshot is the journal's own output template only
 * when the journal is the caller's own file.
 */
#define _GNU_SOURCE
#include "tools/recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/image.h"
#include "recorder/outfile.h"
#include "recorder/snapshot.h"
#include "tools/places.h"
#include "tools/units.h"
#include "tools/verbs.h"

static const char usage[] =
	"usage: gpumem recover [--keep] [-o TEMPLATE] [PID | FILE | DIRECTORY]...\n"
	"\n"
	"Make snapshots of the journals that killed processes left behind; without an argument of\n"
	"all of yours. Living processes are left alone.\n"
	"  -k, --keep             leave the journals where they are\n"
	"  -o, --output TEMPLATE  name the snapshots so, instead of as the process would have\n";

static const char *output_wanted;

/* What the image says of the process: numbers for one line. */
static void describe(const struct gm_image *image, struct gm_recovered *ret)
{
	uint64_t allocations = 0;

	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *domain = gm_image_domain(image, d);

		if (!domain)
			continue;
		allocations += (uint64_t)domain->stats.stat[GM_STAT_ALLOCATION][0].allocated;
		for (unsigned int k = 0; k < GM_KIND_COUNT; k++)
			allocations += domain->live_bytes[k] != 0;
		if (d >= GM_MAX_DEVICES)
			continue;
		ret->live_bytes += (uint64_t)domain->stats.stat[GM_STAT_ALLOCATED_BYTES][0].current;
		ret->peak_bytes += (uint64_t)domain->stats.stat[GM_STAT_RESERVED_BYTES][0].peak;
		ret->live_blocks += (uint64_t)domain->stats.stat[GM_STAT_ALLOCATION][0].current;
	}
	ret->unused = !allocations && !gm_image_items(image, GM_REGION_FAILURES);
	ret->in_flight = (unsigned int)image->flight_count;
}

/* The snapshot of a dead process's journal, from a settled image. */
static int write_snapshot(const struct gm_image *image, bool own, char *path, size_t bytes)
{
	const struct gm_snapshot_request request = { .reason = "recovered", .recovered = true };
	char template[sizeof(image->header->output)];

	memcpy(template, image->header->output, sizeof(template));
	template[sizeof(template) - 1] = '\0';
	if (output_wanted)
		snprintf(template, sizeof(template), "%s", output_wanted);
	else if (!own || !template[0])
		snprintf(template, sizeof(template), "%s", GM_OUTFILE_DEFAULT);
	return gm_snapshot_write(image, &request, template, 0, output_wanted ? NULL : ".", path,
				 bytes);
}

static int recover_dead(int fd, const struct stat *st, const char *path, bool keep,
			struct gm_recovered *ret)
{
	static char snapshot[4096], command[sizeof(((struct gm_header *)0)->command) + 1];
	static char error[320];
	struct gm_image image;
	int r;

	memset(&image, 0, sizeof(image));
	r = gm_image_copy_file(&image, fd);
	if (!r)
		r = gm_image_settle(&image, UINT64_MAX);
	if (r) {
		snprintf(error, sizeof(error), "%s", image.error[0] ? image.error : strerror(-r));
		ret->error = error;
		gm_image_free(&image);
		return r;
	}
	ret->pid = image.header->pid;
	snprintf(command, sizeof(command), "%.*s", (int)sizeof(image.header->command),
		 image.header->command);
	for (char *c = command; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	ret->command = command;
	describe(&image, ret);
	ret->ended = image.header->life == GM_LIFE_CLEAN;
	snapshot[0] = '\0';
	if (!ret->unused && !ret->ended)
		r = write_snapshot(&image, st->st_uid == geteuid(), snapshot, sizeof(snapshot));
	gm_image_free(&image);
	if (r) {
		snprintf(error, sizeof(error), "the snapshot could not be written: %s", strerror(-r));
		ret->error = error;
		return r;
	}
	ret->snapshot = snapshot;
	if (!keep && unlink(path) && errno != ENOENT) {
		snprintf(error, sizeof(error), "it could not be removed: %s", strerror(errno));
		ret->error = error;
	}
	return 0;
}

int gm_recover_file(const char *path, bool keep, struct gm_recovered *ret)
{
	static char error[160];
	struct stat st;
	int fd, r;

	*ret = (struct gm_recovered){ .journal = path, .snapshot = "", .error = "", .command = "" };
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st)) {
		r = -errno;
		snprintf(error, sizeof(error), "%s", strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		r = -EBADMSG;
		snprintf(error, sizeof(error), "it is not a file");
	} else {
		r = gm_image_alive(fd);
		if (r == 1) {
			struct gm_header header;

			ret->alive = true;
			if (pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header))
				ret->pid = header.pid;
			close(fd);
			return 0;
		}
		if (!r || r == -EBADMSG) {
			r = recover_dead(fd, &st, path, keep, ret);
			close(fd);
			return r;
		}
		snprintf(error, sizeof(error), "it cannot be told whether its process lives: %s",
			 strerror(-r));
	}
	if (fd >= 0)
		close(fd);
	ret->error = error;
	return r;
}

static bool is_journal_name(const char *name)
{
	size_t length = strlen(name);

	return length > 8 && !strcmp(name + length - 8, ".journal");
}

static int one_directory(const char *directory, bool keep,
			 void (*each)(void *arg, const struct gm_recovered *one), void *arg)
{
	struct dirent **names = NULL;
	int found = 0;
	int count = scandir(directory, &names, NULL, alphasort);

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		char path[4096];

		if (is_journal_name(names[i]->d_name) &&
		    snprintf(path, sizeof(path), "%s/%s", directory, names[i]->d_name) <
			    (int)sizeof(path)) {
			struct gm_recovered one;

			gm_recover_file(path, keep, &one);
			each(arg, &one);
			found++;
		}
		free(names[i]);
	}
	free(names);
	return found;
}

int gm_recover_directory(const char *directory, bool keep,
			 void (*each)(void *arg, const struct gm_recovered *one), void *arg)
{
	char below[4096];
	int found = one_directory(directory, keep, each, arg);
	int more;

	/* Where the journal option names a directory, the journals lie in one of ours below it. */
	if (found < 0 || snprintf(below, sizeof(below), "%s/gpumem-%u", directory,
				  (unsigned int)geteuid()) >= (int)sizeof(below))
		return found;
	more = one_directory(below, keep, each, arg);
	return more > 0 ? found + more : found;
}

/* ---- the verb ---- */

struct tally {
	unsigned int recovered, alive, failed, seen;
	int64_t pid;			/* only this one; 0 all */
	bool keep;
};

static void print_one(struct tally *tally, const struct gm_recovered *one)
{
	char live[32], peak[32];

	tally->seen++;
	if (one->alive) {
		tally->alive++;
		printf("%s: process %" PRId64 " is alive: left alone\n", one->journal, one->pid);
	} else if (one->error[0] && !one->snapshot[0]) {
		tally->failed++;
		fprintf(stderr, "gpumem recover: %s: %s\n", one->journal, one->error);
	} else if (one->ended || one->unused) {
		printf("%s: process %" PRId64 " (%s) %s: no snapshot needed\n", one->journal, one->pid,
		       one->command, one->ended ? "ended well" : "allocated nothing");
	} else {
		tally->recovered++;
		gm_units_bytes(one->live_bytes, live, sizeof(live));
		gm_units_bytes(one->peak_bytes, peak, sizeof(peak));
		printf("process %" PRId64 " (%s): %s live in %" PRIu64 " blocks, peak %s, %u operation%s "
		       "in flight\n  %s\n", one->pid, one->command, live, one->live_blocks, peak,
		       one->in_flight, one->in_flight == 1 ? "" : "s", one->snapshot);
		if (one->error[0])
			fprintf(stderr, "gpumem recover: %s: %s\n", one->journal, one->error);
	}
}

static void tell(void *arg, const struct gm_recovered *one)
{
	print_one(arg, one);
}

/* The pid in the name of a journal, COMMAND.PID.RANDOM.journal; 0 none. */
static int64_t pid_of_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	char name[256];
	char *dot;

	snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
	for (int i = 0; i < 2; i++) {
		dot = strrchr(name, '.');
		if (!dot)
			return 0;
		*dot = '\0';
	}
	dot = strrchr(name, '.');
	return dot ? strtoll(dot + 1, NULL, 10) : 0;
}

static void visit(void *arg, const char *path)
{
	struct tally *tally = arg;
	struct gm_recovered one;

	if (tally->pid && pid_of_name(path) != tally->pid)
		return;
	gm_recover_file(path, tally->keep, &one);
	print_one(tally, &one);
}

static void recover_argument(const char *word, struct tally *tally)
{
	struct gm_recovered one;
	struct stat st;
	char *end;
	long pid = strtol(word, &end, 10);

	if (!stat(word, &st)) {
		if (S_ISDIR(st.st_mode)) {
			gm_recover_directory(word, tally->keep, tell, tally);
		} else {
			gm_recover_file(word, tally->keep, &one);
			print_one(tally, &one);
		}
	} else if (!*end && pid > 0) {
		unsigned int before = tally->seen;

		tally->pid = pid;
		gm_places_each(visit, tally);
		tally->pid = 0;
		if (tally->seen == before) {
			fprintf(stderr, "gpumem recover: process %ld left no journal\n", pid);
			tally->failed++;
		}
	} else {
		fprintf(stderr, "gpumem recover: %s: %s\n", word, strerror(errno));
		tally->failed++;
	}
}

int gm_verb_recover(int argc, char **argv)
{
	static const struct option options[] = {
		{ "keep", no_argument, NULL, 'k' }, { "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 }
	};
	struct tally tally = { 0 };
	int c;

	while ((c = getopt_long(argc, argv, "ko:h", options, NULL)) >= 0) {
		if (c == 'k') {
			tally.keep = true;
		} else if (c == 'o') {
			output_wanted = optarg;
		} else {
			fputs(usage, c == 'h' ? stdout : stderr);
			return c == 'h' ? GM_EXIT_OK : GM_EXIT_USAGE;
		}
	}
	for (int i = optind; i < argc; i++)
		recover_argument(argv[i], &tally);
	if (optind == argc)
		gm_places_each(visit, &tally);
	if (!tally.seen && !tally.failed)
		puts("no journals found");
	return tally.failed ? GM_EXIT_INPUT : GM_EXIT_OK;
}
