/*
 * race_report.c - what the race detector found: counted, kept as text, written where the
 * environment says, and the process's exit code if it asks for that.
 *
 * Two operations are reported once for each rule pair's first conflict. Lock: fc.lock; the control
 * calls take it. At exit (a destructor) nothing else of the process runs.
 */
#include "test/fakecuda/race/race.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_TEXTS 1000
#define EXIT_CODE 66

static char *texts[MAX_TEXTS];
static size_t n_races;
static pid_t reported_by;

static struct {
	bool read, off, threads, exit;
	char *path;
} config;

static void read_config(void)
{
	const char *env = getenv("FAKECUDA_RACE");
	char *copy, *rest, *word;

	if (config.read)
		return;
	config.read = true;
	copy = rest = env ? strdup(env) : NULL;
	while (rest && (word = strsep(&rest, ","))) {
		if (!strcmp(word, "off"))
			config.off = true;
		else if (!strcmp(word, "threads"))
			config.threads = true;
		else if (!strcmp(word, "exit"))
			config.exit = true;
		else if (!strncmp(word, "file=", 5) && !config.path)
			config.path = strdup(word + 5);
		else if (*word)
			fprintf(stderr, "fakecuda: FAKECUDA_RACE: \"%s\": want off, threads, exit "
				"or file=PATH\n", word);
	}
	free(copy);
}

bool race_config_off(void)
{
	read_config();
	return config.off;
}

bool race_config_threads(void)
{
	read_config();
	return config.threads;
}

static void describe(const struct race_op *ro, const struct race_use *use, char *buf, size_t size)
{
	static const char *const verbs[] = { "reads", "writes", "uses", "watches", "frees" };
	char where[64];

	if (!ro->seq)
		snprintf(where, sizeof(where), "by the host");
	else if (ro->stream_legacy)
		snprintf(where, sizeof(where), "#%llu on the legacy stream",
			 (unsigned long long)ro->seq);
	else if (ro->stream_id)
		snprintf(where, sizeof(where), "#%llu on stream %llu", (unsigned long long)ro->seq,
			 (unsigned long long)ro->stream_id);
	else
		snprintf(where, sizeof(where), "#%llu", (unsigned long long)ro->seq);
	snprintf(buf, size, "%s %s %s [%#llx, %#llx)", ro->name, where, verbs[use->kind],
		 (unsigned long long)use->start, (unsigned long long)use->end);
}

static void write_out(const char *text)
{
	int fd;

	if (!config.path)
		return;
	fd = !strcmp(config.path, "-") ? STDERR_FILENO :
	     open(config.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	dprintf(fd, "fakecuda[%d]: %s\n", (int)getpid(), text);
	if (fd != STDERR_FILENO)
		close(fd);
}

void race_report(const char *rule, struct race_op *a, const struct race_use *a_use,
		 const struct race_op *b, const struct race_use *b_use, const char *by)
{
	char first[200], second[200], text[600];

	if (b && b->seq && a->reported_with == b->seq)
		return;
	if (!b && a->reported_with == UINT64_MAX)
		return;
	a->reported_with = b ? b->seq : UINT64_MAX;
	read_config();
	describe(a, a_use, first, sizeof(first));
	if (b)
		describe(b, b_use, second, sizeof(second));
	else
		snprintf(second, sizeof(second), "%s", by);
	snprintf(text, sizeof(text), "race: %s: %s is not ordered before %s", rule, first, second);
	fc_log("%s", text);
	write_out(text);
	reported_by = getpid();
	if (n_races < MAX_TEXTS)
		texts[n_races] = strdup(text);
	n_races++;
}

size_t race_report_count(void)
{
	return n_races;
}

static void clear(void)
{
	for (size_t i = 0; i < MAX_TEXTS && i < n_races; i++) {
		free(texts[i]);
		texts[i] = NULL;
	}
	n_races = 0;
}

void race_report_reset(void)
{
	clear();
	free(config.path);
	memset(&config, 0, sizeof(config));
}

__attribute__((destructor)) static void at_exit(void)
{
	if (!n_races || !config.exit || reported_by != getpid())
		return;
	for (size_t i = 0; i < n_races && i < MAX_TEXTS; i++)
		fprintf(stderr, "fakecuda[%d]: %s\n", (int)getpid(), texts[i] ? texts[i] : "race");
	fflush(NULL);
	syscall(SYS_exit_group, EXIT_CODE);	/* not _exit, which a library above may hook */
}

/* ---- control ---- */

FC_EXPORT size_t fakecuda_races(void)
{
	size_t n;

	fc_enter_control();
	n = n_races;
	fc_leave_control();
	return n;
}

FC_EXPORT const char *fakecuda_race_text(size_t n)
{
	const char *text;

	fc_enter_control();
	text = n < n_races && n < MAX_TEXTS ? texts[n] : NULL;
	fc_leave_control();
	return text;
}

FC_EXPORT void fakecuda_race_clear(void)
{
	fc_enter_control();
	clear();
	fc_leave_control();
}
