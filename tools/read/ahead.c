/*
 * ahead.c - inputs read one ahead of the verb that asks for them: see ahead.h.
 *
 * A job belongs to its thread until that is joined; only @stop is looked at from both. Half of the
 * reading alone is done there (load.h): what comes after it keeps a list of its own.
 */
#define _GNU_SOURCE
#include "tools/read/ahead.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LARGE ((off_t)512 << 20)	/* bytes of a file: two such at once would take too much memory */

struct gm_ahead_job {
	pthread_t thread;
	size_t place;			/* of the word */
	struct gm_loaded loaded;
	struct gm_load_half half;
	bool stop;			/* atomic */
};

struct gm_ahead gm_ahead_of(char **words, size_t count)
{
	return (struct gm_ahead){ .words = words, .count = count };
}

static void *read_job(void *arg)
{
	struct gm_ahead_job *job = arg;

	gm_load_begin(&job->half, &job->loaded);
	return NULL;
}

static void start(struct gm_ahead *ahead, size_t place)
{
	struct gm_ahead_job *job;
	struct stat st;

	if (place >= ahead->count || ahead->job || !strcmp(ahead->words[place], "-") ||
	    stat(ahead->words[place], &st) || !S_ISREG(st.st_mode) || st.st_size > LARGE)
		return;
	job = calloc(1, sizeof(*job));
	if (!job)
		return;
	job->place = place;
	mallopt(M_ARENA_MAX, 1);	/* one of its own would keep what it had for nobody */
	job->half = (struct gm_load_half){ .word = ahead->words[place], .stop = &job->stop };
	if (pthread_create(&job->thread, NULL, read_job, job))
		free(job);
	else
		ahead->job = job;
}

void gm_ahead_close(struct gm_ahead *ahead)
{
	struct gm_ahead_job *job = ahead->job;

	if (!job)
		return;
	__atomic_store_n(&job->stop, true, __ATOMIC_RELAXED);
	pthread_join(job->thread, NULL);
	gm_load_free(&job->loaded);
	free(job);
	ahead->job = NULL;
}

/* Where memory is scarce it is one after the other: a file can be read anew. */
static int load_alone(struct gm_ahead *ahead, size_t i, int r, struct gm_loaded *ret)
{
	struct stat st;

	if (r != -ENOMEM || !ahead->job || stat(ahead->words[i], &st) || !S_ISREG(st.st_mode))
		return r;
	gm_ahead_close(ahead);
	return gm_load(ahead->words[i], ret);
}

int gm_ahead_load(struct gm_ahead *ahead, size_t i, struct gm_loaded *ret)
{
	struct gm_ahead_job *job = ahead->job;
	int r;

	if (!job || job->place != i) {
		start(ahead, i + 1);
		return load_alone(ahead, i, gm_load(ahead->words[i], ret), ret);
	}
	pthread_join(job->thread, NULL);
	ahead->job = NULL;
	start(ahead, i + 1);
	*ret = job->loaded;
	r = gm_load_end(&job->half, ret);
	free(job);
	return load_alone(ahead, i, r, ret);
}
