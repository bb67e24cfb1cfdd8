/*
 * identity.c - who writes this journal: see identity.h.
 */
#define _GNU_SOURCE
#include "recorder/journal/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/journal/clock.h"
#include "recorder/journal/sys.h"

void gm_text_copy(char *field, size_t size, const char *text)
{
	size_t n = text ? strnlen(text, size - 1) : 0;

	if (n)
		memcpy(field, text, n);
	memset(field + n, 0, size - n);
}

const char *gm_identity_command(void)
{
	const char *name = program_invocation_short_name;

	return name && *name ? name : "unknown";
}

/* Read a file of /proc into @buf. Returns its bytes; 0 when it cannot be read. */
static size_t proc(const char *file, char *buf, size_t size)
{
	char path[512];
	ssize_t n = -1;

	buf[0] = '\0';
	if (snprintf(path, sizeof(path), "%s/%s", gm_sys.proc, file) < (int)sizeof(path))
		n = gm_file_read(path, buf, size);
	return n > 0 ? (size_t)n : 0;
}

uint64_t gm_identity_ticks(const char *stat)
{
	const char *at = strrchr(stat, ')');

	if (!at || !at[1] || at[2] == 'Z' || at[2] == 'X')
		return 0;
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

void gm_identity_boot(char ret[40])
{
	proc("sys/kernel/random/boot_id", ret, 40);
	ret[strcspn(ret, "\n")] = '\0';
}

/* Does a process that is not root's have capabilities? */
static bool has_rights(void)
{
	char text[4096];
	const char *line;

	if (geteuid() == 0 || !proc("self/status", text, sizeof(text)))
		return false;
	line = strstr(text, "\nCapPrm:");
	return line && strtoull(line + 8, NULL, 16) != 0;
}

bool gm_identity_dumpable(void)
{
	return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
}

bool gm_identity_guarded(void)
{
	return !gm_identity_dumpable() || has_rights();
}

static void fill_command_line(struct gm_header *header)
{
	size_t n = proc("self/cmdline", header->command_line, sizeof(header->command_line));

	while (n && !header->command_line[n - 1])
		n--;
	for (size_t i = 0; i < n; i++)
		if (!header->command_line[i])
			header->command_line[i] = ' ';
	if (!n)
		gm_text_copy(header->command_line, sizeof(header->command_line),
			     program_invocation_name);
}

void gm_identity_fill(struct gm_header *header)
{
	char path[512], text[1024];
	struct stat st;

	header->pid = getpid();
	header->uid = (uint32_t)geteuid();
	if (snprintf(path, sizeof(path), "%s/self/ns/pid", gm_sys.proc) < (int)sizeof(path) &&
	    stat(path, &st) == 0)
		header->pid_namespace = (uint64_t)st.st_ino;
	proc("self/stat", text, sizeof(text));
	header->start_ticks = gm_identity_ticks(text);
	header->start_time_us = gm_wall_us();
	gm_identity_boot(header->boot_id);
	if (gethostname(header->host, sizeof(header->host)) < 0)
		header->host[0] = '\0';
	header->host[sizeof(header->host) - 1] = '\0';
	gm_text_copy(header->command, sizeof(header->command), gm_identity_command());
	fill_command_line(header);
	if (!getcwd(header->directory, sizeof(header->directory)))
		header->directory[0] = '\0';
}
