/*
 * labels.c - labels of a process, such as its container: see attach.h.
 *
 * The environment is the one with which the process was started. No file has a container's name. The path of the
 * control group has its id, of which tools show the first twelve digits.
 */
#define _GNU_SOURCE
#include "tools/read/attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const gm_label_names[GM_LABELS] = { "job", "namespace", "pod", "container" };

/* The first variable that is set decides a label. */
static const struct { const char *name; int label; } variables[] = {
	{ "SLURM_JOB_ID", GM_LABEL_JOB }, { "FLUX_JOB_ID", GM_LABEL_JOB }, { "LSB_JOBID", GM_LABEL_JOB },
	{ "PBS_JOBID", GM_LABEL_JOB }, { "TORCHELASTIC_RUN_ID", GM_LABEL_JOB }, { "POD_NAMESPACE", GM_LABEL_NAMESPACE },
	{ "POD_NAME", GM_LABEL_POD }, { "CONTAINER_NAME", GM_LABEL_CONTAINER },
};
#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

/* No process is started with a larger environment. A process may claim one of terabytes by prctl(PR_SET_MM). */
#define ENVIRONMENT_MOST ((size_t)8 << 20)

static void read_environment(pid_t pid, struct gm_labels *ret, char host[128])
{
	const char *found[VARIABLES] = { NULL };
	FILE *in = gm_attach_proc(pid, "environ");
	char *all = in ? malloc(ENVIRONMENT_MOST + 1) : NULL;
	size_t bytes = all ? fread(all, 1, ENVIRONMENT_MOST, in) : 0;

	if (all)
		all[bytes] = '\0';
	for (const char *each = all; each && each < all + bytes; each += strlen(each) + 1)
		for (size_t i = 0; i <= VARIABLES; i++) {
			const char *name = i < VARIABLES ? variables[i].name : "HOSTNAME";
			size_t length = strlen(name);

			if (strncmp(each, name, length) || each[length] != '=')
				continue;
			if (i == VARIABLES)
				snprintf(host, 128, "%s", each + length + 1);
			else if (!found[i])
				found[i] = each + length + 1;
		}
	for (size_t i = 0; i < VARIABLES; i++)
		if (found[i] && !ret->text[variables[i].label][0])
			snprintf(ret->text[variables[i].label], sizeof(ret->text[0]), "%s", found[i]);
	free(all);
	if (in)
		fclose(in);
}

/* Return the last run of 64 hexadecimal digits in @path, which is a container's id; NULL: there is none. */
static const char *container_in(const char *path)
{
	const char *found = NULL;

	for (; *path; path++) {
		size_t digits = strspn(path, "0123456789abcdef");

		if (digits == 64)
			found = path;
		if (digits)
			path += digits - 1;
	}
	return found;
}

/* Read container and pod from the control group. If Kubernetes started the process, the pod's name is @host. */
static void read_cgroup(pid_t pid, struct gm_labels *ret, const char *host)
{
	char line[4096];
	FILE *in = gm_attach_proc(pid, "cgroup");

	while (in && fgets(line, sizeof(line), in)) {
		const char *number = container_in(line);

		if (number && !ret->text[GM_LABEL_CONTAINER][0])
			snprintf(ret->text[GM_LABEL_CONTAINER], sizeof(ret->text[0]), "%.12s", number);
		if (strstr(line, "kubepods") && !ret->text[GM_LABEL_POD][0])
			snprintf(ret->text[GM_LABEL_POD], sizeof(ret->text[0]), "%s", host);
	}
	if (in)
		fclose(in);
}

void gm_labels_of(pid_t pid, struct gm_labels *ret)
{
	char host[128] = "";

	memset(ret, 0, sizeof(*ret));
	read_environment(pid, ret, host);
	read_cgroup(pid, ret, host);
}
