/*
 * scenarios_wait.c - the program's own waiting, and what other threads do meanwhile (see scenario.h).
 *
 * Thread context: threads that stand still where a scenario wants them to.
 */
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test/model/scenario.h"

/* A thread that frees @p, and is held at the end of its @entry. */
struct freer {
	struct scene *scene;
	CUdeviceptr p;
	const char *entry;		/* NULL: it is not held */
	sem_t held, go;
	_Atomic(pid_t) thread;		/* set when it is about to free */
};

static void hold(void *arg, const char *entry, int relaxed, int result)
{
	struct freer *freer = arg;

	(void)relaxed;
	if (result || !freer->entry || strcmp(entry, freer->entry))
		return;
	freer->entry = NULL;
	sem_post(&freer->held);
	sem_wait(&freer->go);
}

static void *run_freer(void *arg)
{
	void (*watch)(void (*)(void *, const char *, int, int), void *);
	struct freer *freer = arg;

	watch = (void (*)(void (*)(void *, const char *, int, int), void *))control("fakecuda_watch");
	CHECK(cuCtxSetCurrent(freer->scene->context[0]));
	watch(hold, freer);
	((void (*)(uint64_t))control("fakecuda_note_free"))(freer->p);
	freer->thread = (pid_t)syscall(SYS_gettid);
	CHECK(cuMemFree(freer->p));
	watch(NULL, NULL);
	return NULL;
}

static pthread_t begin_to_free(struct freer *freer, struct scene *scene, CUdeviceptr p,
			       const char *entry)
{
	pthread_t thread;

	freer->scene = scene;
	freer->p = p;
	freer->entry = entry;
	sem_init(&freer->held, 0, 0);
	sem_init(&freer->go, 0, 0);
	pthread_create(&thread, NULL, run_freer, freer);
	return thread;
}

/* Until @freer sleeps in its free, where nothing but a lock could have it sleep. */
static void await_asleep(const struct freer *freer)
{
	char path[64], line[256], state = 0;
	FILE *file;

	while (state != 'S') {
		usleep(1000);
		if (!freer->thread)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)freer->thread);
		file = fopen(path, "r");
		if (!file || !fgets(line, sizeof(line), file) ||
		    sscanf(strrchr(line, ')'), ") %c", &state) != 1)
			DIE("%s cannot be read", path);
		fclose(file);
	}
}

/* A waiting free has found that its context alone was given work, and stands before a lock. Another
 * device is given its first work, what that uses is freed, and only then does the wait begin. */
void scenario_free_waits_elsewhere(void)
{
	struct freer first = { 0 }, second = { 0 };
	CUdeviceptr a, b, left, p, q;
	CUstream there, beside;
	struct scene scene;
	pthread_t holds, waits;

	scene_open(&scene, 2);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	p = get(2 * MIB);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	a = get(2 * MIB);
	b = get(2 * MIB);
	left = get(2 * MIB);
	slow_from_here();
	fill(&scene, scene.s, left, 1);
	give_async(left, scene.s);
	fill(&scene, scene.t, a, 1);		/* what is left has its event */
	holds = begin_to_free(&first, &scene, a, "cuCtxRecordEvent");
	if (cached())
		sem_wait(&first.held);
	waits = begin_to_free(&second, &scene, b, NULL);
	if (cached())
		await_asleep(&second);
	fill_in(&scene, 1, there, p, 1);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	give_async(p, there);
	sem_post(&first.go);
	pthread_join(holds, NULL);
	pthread_join(waits, NULL);
	q = get(2 * MIB);
	fill_in(&scene, 1, beside, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(beside, q, 2);
}
