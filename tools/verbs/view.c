/*
 * view.c - gpumem view FILE...: one HTML page that shows snapshots and needs no other file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/read/input.h"
#include "tools/show/show.h"
#include "tools/torch/torch.h"
#include "tools/verbs/arguments.h"
#include "tools/verbs/opened.h"
#include "tools/write/convert.h"
#include "tools/write/output.h"
#include "tools/write/view.h"

extern char **environ;

/* The part of each snapshot that is wanted. @level: enum gm_pool_level; -1: both levels. */
struct part { struct gm_cut cut; int level; };

static int pack(const char *word, const struct part *part, struct gm_pack *ret)
{
	struct gm_opened opened;
	enum gm_pool_level level = part->level == GM_LEVEL_POOL ? GM_LEVEL_POOL : GM_LEVEL_DRIVER;
	int status = gm_open_part("view", word, &part->cut, level, &opened), r;

	if (status)
		return status;
	if (opened.loaded.from == GM_LOADED_TORCH)
		gm_torch_stats(&opened.loaded.snapshot);
	r = gm_view_pack(&opened.scene, strcmp(word, "-") ? basename(word) : "standard input", part->level < 0, ret);
	if (r)
		status = gm_input_bad("view", word, gm_limit_why(r));
	gm_opened_close(&opened);
	return status;
}

static int write_page(const char *path, const struct gm_pack *packs, int count)
{
	struct gm_output output;
	int r = gm_output_open(&output, path, false);

	if (!r)
		r = gm_output_close(&output, gm_view_write(output.file, packs, (size_t)count));
	if (!r)
		return GM_EXIT_OK;
	fprintf(stderr, "gpumem view: %s: the output could not be written: %s\n", gm_show_clean(path ? path : "-"),
		gm_limit_why(r));
	return GM_EXIT_FAILED;
}

/* Let the desktop open @path. If there is no browser, xdg-open may say so late or never, so always print the path.
 * Returns an exit status. */
static int open_page(const char *path)
{
	char *const words[] = { (char *)"xdg-open", (char *)(uintptr_t)path, NULL };
	int status = 0, r;
	pid_t child;

	printf("%s\n", gm_show_path(path));
	fflush(stdout);
	r = posix_spawnp(&child, words[0], NULL, NULL, words, environ);
	if (!r && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status))
		return GM_EXIT_OK;
	fprintf(stderr, "gpumem view: no browser was opened (%s): open the page by hand\n",
		r ? strerror(r) : "xdg-open failed");
	return GM_EXIT_FAILED;
}

/* Make a temporary file for a page without --output, for its owner alone. Returns 0 and the path, or -errno. */
static int name_page(char *ret, size_t room)
{
	const char *place = secure_getenv("XDG_RUNTIME_DIR");
	int fd;

	if (!place || place[0] != '/')
		place = secure_getenv("TMPDIR");
	if (!place || place[0] != '/')
		place = "/tmp";
	if (snprintf(ret, room, "%s/gpumem-view-XXXXXX.html", place) >= (int)room)
		return -ENAMETOOLONG;
	fd = mkostemps(ret, 5, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int view(const char *output, bool open, const struct gm_pack *packs, int count)
{
	char path[PATH_MAX], whole[PATH_MAX];
	int status, r;

	if (open && !output) {
		r = name_page(path, sizeof(path));
		if (r) {
			fprintf(stderr, "gpumem view: no place for the page: %s\n", strerror(-r));
			return GM_EXIT_FAILED;
		}
		output = path;
	}
	status = write_page(output, packs, count);
	if (status && output == path)
		unlink(path);
	if (status || !open)
		return status;
	return open_page(realpath(output, whole) ? whole : output);
}

/* Read all snapshots before the page is written, so that an unreadable one leaves no half page. Returns an exit
 * status. */
static int pack_and_view(const char *output, bool open, const struct part *part, char **words, int count)
{
	struct gm_pack *packs = calloc((size_t)count, sizeof(*packs));
	int status = packs ? GM_EXIT_OK : GM_EXIT_FAILED;

	for (int i = 0; !status && i < count; i++)
		status = pack(words[i], part, &packs[i]);
	if (!status)
		status = view(output, open, packs, count);
	for (int i = 0; packs && i < count; i++)
		free(packs[i].bytes);
	free(packs);
	return status;
}

int gm_verb_view(int argc, char **argv)
{
	const char *output = NULL;
	struct part part = { .cut = { .last = NAN, .since = NAN }, .level = -1 };
	bool open = false;
	const struct gm_argument arguments[] = {
		{ "output", GM_ARG_TEXT, &output }, { "open", GM_ARG_FLAG, &open },
		{ "last", GM_ARG_TIME, &part.cut.last }, { "since", GM_ARG_TIME, &part.cut.since },
		{ "min-size", GM_ARG_SIZE, &part.cut.min_size }, { "device", GM_ARG_DEVICE_OR_HOST, &part.cut.device },
		{ "level", GM_ARG_WORD, &part.level }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, INT_MAX);
	bool to_stdout;
	size_t bytes;

	if (status >= 0)
		return status;
	if (part.cut.last < 0) {
		fputs("gpumem view: --last is how many seconds: not below 0 (gpumem help view)\n", stderr);
		return GM_EXIT_USAGE;
	}
	if (gm_output_check("view", output, ".html .htm"))
		return GM_EXIT_USAGE;
	to_stdout = output && (!strcmp(output, "-") || !strcmp(output, "/dev/stdout"));
	if (open && to_stdout) {
		fputs("gpumem view: --open and standard output are two places\n", stderr);
		return GM_EXIT_USAGE;
	}
	if (!open && (!output || to_stdout) && isatty(STDOUT_FILENO)) {
		fputs("gpumem view: a page is not for a terminal: name a file with -o, or have it opened with --open\n",
		      stderr);
		return GM_EXIT_USAGE;
	}
	if (!gm_view_page(&bytes)) {
		fputs("gpumem view: this gpumem was built without its page, which takes node to build "
		      "(Debian: nodejs npm; then scripts/setup.sh demo, and make)\n", stderr);
		return GM_EXIT_FAILED;
	}
	return pack_and_view(output, open, &part, argv + optind, argc - optind);
}
