/*
 * budget.c - how much of the host's memory the journal may take: see budget.h.
 */
#include "recorder/journal/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/journal/format.h"
#include "recorder/journal/sys.h"

#define NO_LIMIT (UINT64_C(1) << 60)	/* cgroup v1 writes 2^63 rounded down to pages */
#define LEVELS_MAX 64

/* Find the line of @text that begins with @key, and return its number; UINT64_MAX: no such line. */
static uint64_t field(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, n) && (line[n] == ' ' || line[n] == ':'))
			return strtoull(line + n + 1, NULL, 10);
	}
	return UINT64_MAX;
}

/* Return the number in a one-line file; UINT64_MAX when the file has none ("max") or is missing. */
static uint64_t number_in(const char *dir, const char *file)
{
	char path[2048], text[64];

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path) ||
	    gm_file_read(path, text, sizeof(text)) <= 0 || text[0] < '0' || text[0] > '9')
		return UINT64_MAX;
	return strtoull(text, NULL, 10);
}

/* The files of a memory cgroup, and the line of its memory.stat. */
struct names { const char *limit, *usage, *cache; };
static const struct names v1 = {
	"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
};
static const struct names v2 = { "memory.max", "memory.current", "inactive_file" };

/* Return how many bytes one cgroup still allows. Page cache does not count as used, because the
 * kernel reclaims it first. */
static uint64_t left_in(const char *dir, const struct names *names)
{
	uint64_t limit = number_in(dir, names->limit), usage, cache;
	char path[2048], text[4096];

	if (limit >= NO_LIMIT)
		return UINT64_MAX;
	usage = number_in(dir, names->usage);
	if (usage == UINT64_MAX)
		return UINT64_MAX;
	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) < (int)sizeof(path) &&
	    gm_file_read(path, text, sizeof(text)) > 0) {
		cache = field(text, names->cache);
		if (cache != UINT64_MAX)
			usage -= gm_min_u64(cache, usage);
	}
	return limit > usage ? limit - usage : 0;
}

/* Return the least of left_in() over a cgroup and all cgroups above it. Levels that do not exist here
 * are skipped: in a container without a cgroup namespace the path is the host's, and only its root is
 * mounted. */
static uint64_t left_above(const char *root, const char *path, const struct names *names)
{
	char dir[1024];
	uint64_t left = UINT64_MAX;
	size_t root_length = strlen(root);
	int n = snprintf(dir, sizeof(dir), "%s%s", root, strcmp(path, "/") ? path : "");

	if (n < 0 || n >= (int)sizeof(dir))
		return left_in(root, names);
	for (int level = 0; level < LEVELS_MAX; level++) {
		char *slash;

		left = gm_min_u64(left, left_in(dir, names));
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < root_length)
			break;
		*slash = '\0';
	}
	return left;
}

uint64_t gm_budget_cgroup_left(void)
{
	char path[1024], text[4096];
	uint64_t left = UINT64_MAX;
	char *line, *rest = text;

	if (snprintf(path, sizeof(path), "%s/self/cgroup", gm_sys.proc) >= (int)sizeof(path) ||
	    gm_file_read(path, text, sizeof(text)) <= 0)
		return UINT64_MAX;
	while ((line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':'), *where;

		where = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!where || where[1] != '/')
			continue;
		*where++ = '\0';
		controllers++;
		if (!*controllers) {
			left = gm_min_u64(left, left_above(gm_sys.cgroup, where, &v2));
		} else if (strstr(controllers, "memory")) {
			snprintf(path, sizeof(path), "%s/memory", gm_sys.cgroup);
			left = gm_min_u64(left, left_above(path, where, &v1));
		}
	}
	return left;
}

static uint64_t machine_left(void)
{
	char path[1024], text[2048];
	uint64_t kib;

	if (snprintf(path, sizeof(path), "%s/meminfo", gm_sys.proc) >= (int)sizeof(path) ||
	    gm_file_read(path, text, sizeof(text)) <= 0)
		return UINT64_MAX;
	kib = field(text, "MemAvailable");
	return kib >= NO_LIMIT >> 10 ? UINT64_MAX : kib << 10;
}

uint64_t gm_budget(uint64_t free_bytes)
{
	uint64_t cgroup = gm_budget_cgroup_left(), machine = machine_left();

	return gm_min_u64(free_bytes / 8, gm_min_u64(cgroup, machine) / 32);
}

uint64_t gm_budget_span(void)
{
	struct rlimit file, space;
	uint64_t span = UINT64_MAX;

	if (gm_sys.limit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY)
		span = file.rlim_cur;
	if (gm_sys.limit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
		span = gm_min_u64(span, space.rlim_cur / 16);
	return span;
}
