/*
 * scenarios_single.c - programs that once gave work to other streams and then use one stream for long. Memory is
 * then handed out again at once, as if there had only ever been that stream (reuse.c).
 *
 * Thread context: one thread, except in single_late.
 */
#include <pthread.h>
#include <semaphore.h>

#include "test/model/scenario.h"

#define LONG 300			/* frees between works: more than between two steps of a look */

/* Give both streams work. From here on the first stream's work is quick, other streams' work is slow. */
static CUdeviceptr open_two_streams(struct scene *scene)
{
	CUdeviceptr p;

	scene_open(scene, 1);
	p = get(2 * MIB);
	fill(scene, scene->s, p, 1);
	fill(scene, scene->t, p + MIB, 2);
	CHECK(cuCtxSynchronize());
	slow_from_here();
	return p;
}

static void keep_to_one(const struct scene *scene, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		CUdeviceptr p = get(4096);

		CHECK(cuMemsetD32Async(p, (unsigned int)i, 1024, scene->s));
		give(p);
	}
}

/* Let the next owner of @p write on the first stream, while the second stream's work on @p may be under way. */
static void use_again(struct scene *scene, CUdeviceptr p)
{
	CUdeviceptr q;

	give(p);
	q = get(2 * MIB);
	fill(scene, scene->s, q, 3);
	CHECK(cuCtxSynchronize());
	expect_words(scene->s, q, 3);
}

void scenario_single_again(void)
{
	struct scene scene;
	CUdeviceptr p = open_two_streams(&scene), q;

	keep_to_one(&scene, 3 * LONG);
	fill(&scene, scene.s, p, 3);
	give(p);
	q = get(2 * MIB);
	must(!cached() || q == p, "not handed out again at once");
	fill(&scene, scene.t, q, 4);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 4);
}

void scenario_single_pending(void)
{
	struct scene scene;
	CUdeviceptr p = open_two_streams(&scene);

	fill(&scene, scene.t, p, 2);
	keep_to_one(&scene, 3 * LONG);
	use_again(&scene, p);
}

void scenario_single_other(void)
{
	struct scene scene;
	CUdeviceptr p = open_two_streams(&scene);

	keep_to_one(&scene, LONG);		/* the look has begun */
	fill(&scene, scene.t, p, 2);
	keep_to_one(&scene, 2 * LONG);
	use_again(&scene, p);
}

/* ---- a call that lasts ---- */

struct late { struct scene *scene; CUdeviceptr p; sem_t begun, go; };

static void hold(void *arg, const char *entry, int relaxed, int result)
{
	struct late *late = arg;

	(void)relaxed;
	if (result != -1 || strncmp(entry, "cuLaunchKernel", strlen("cuLaunchKernel")))
		return;
	sem_post(&late->begun);
	sem_wait(&late->go);
}

static void *launch_late(void *arg)
{
	void (*watch)(void (*)(void *, const char *, int, int), void *);
	struct late *late = arg;

	watch = (void (*)(void (*)(void *, const char *, int, int), void *))control("fakecuda_watch");
	CHECK(cuCtxSetCurrent(late->scene->context[0]));
	watch(hold, late);
	fill(late->scene, late->scene->t, late->p, 2);
	watch(NULL, NULL);
	return NULL;
}

void scenario_single_late(void)
{
	struct scene scene;
	struct late late = { .scene = &scene };
	pthread_t thread;

	late.p = open_two_streams(&scene);
	sem_init(&late.begun, 0, 0);
	sem_init(&late.go, 0, 0);
	pthread_create(&thread, NULL, launch_late, &late);
	sem_wait(&late.begun);
	keep_to_one(&scene, 3 * LONG);
	sem_post(&late.go);
	pthread_join(thread, NULL);
	use_again(&scene, late.p);
}
