/* app_training.c - the memory of a training program, without the training: weights and optimiser
 * state that stay, activations of other sizes in every step, a workspace, and faults on request.
 *
 * usage: app_training [--steps N] [--batch N] [--small N] [--leak] [--oom] [--wait]
 *   --small  vocabulary keeps N blocks of 4 KiB
 *   --leak   remember_loss keeps 1 MiB a step for ever
 *   --oom    evaluate asks for more than there is after the last step; exit 1
 *   --wait   prints "waiting" and sleeps, before anything is given back
 * Thread context: one thread.
 */
#include <unistd.h>

#include "test/apps/drv.h"

#define LAYERS 12
#define STEPS_MOST 4096
#define MIB ((size_t)1 << 20)

static CUdeviceptr weights[LAYERS], moments[LAYERS], losses[STEPS_MOST];
static unsigned int leaked;

#define NOINLINE __attribute__((noinline))

NOINLINE CUdeviceptr load_weights(unsigned int layer);
NOINLINE CUdeviceptr make_moments(unsigned int layer);
NOINLINE CUdeviceptr forward(unsigned int step, unsigned int layer, unsigned int batch);
NOINLINE void remember_loss(void);
NOINLINE void vocabulary(unsigned int count);
NOINLINE CUresult evaluate(void);

static inline __attribute__((always_inline)) CUdeviceptr get(size_t bytes)
{
	CUdeviceptr p = 0;

	CHECK(cuMemAlloc(&p, bytes));
	return p;
}

CUdeviceptr load_weights(unsigned int layer)
{
	return get((6 + layer % 3) * MIB);
}

CUdeviceptr make_moments(unsigned int layer)
{
	return get(2 * (6 + layer % 3) * MIB);
}

/* Sequence lengths differ from step to step, and so do sizes. */
CUdeviceptr forward(unsigned int step, unsigned int layer, unsigned int batch)
{
	size_t length = 300 + (step * 7919 + layer * 104729) % 700;

	return get((size_t)batch * length * 4096 / (layer % 4 + 1));
}

void remember_loss(void)
{
	losses[leaked++] = get(MIB);
}

void vocabulary(unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		(void)get(4096);
}

CUresult evaluate(void)
{
	CUdeviceptr p;

	return cuMemAlloc(&p, 8000 * MIB);
}

static void step(unsigned int number, unsigned int batch)
{
	CUdeviceptr activations[LAYERS], workspace = get((8 + number % 5) * MIB);

	for (unsigned int i = 0; i < LAYERS; i++)
		activations[i] = forward(number, i, batch);
	for (unsigned int i = LAYERS; i--;)
		CHECK(cuMemFree(activations[i]));
	CHECK(cuMemFree(workspace));
}

int main(int argc, char **argv)
{
	unsigned int steps = 20, batch = 8, small = 0;
	int leak = 0, oom = 0, wait = 0, status = 0;
	CUcontext context;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--steps") && i + 1 < argc)
			steps = (unsigned int)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--batch") && i + 1 < argc)
			batch = (unsigned int)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--small") && i + 1 < argc)
			small = (unsigned int)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--leak"))
			leak = 1;
		else if (!strcmp(argv[i], "--oom"))
			oom = 1;
		else if (!strcmp(argv[i], "--wait"))
			wait = 1;
		else
			DIE("unknown argument %s", argv[i]);
	}
	if (steps > STEPS_MOST)
		DIE("--steps: at most %d", STEPS_MOST);
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	for (unsigned int i = 0; i < LAYERS; i++) {
		weights[i] = load_weights(i);
		moments[i] = make_moments(i);
	}
	vocabulary(small);
	for (unsigned int i = 0; i < steps; i++) {
		step(i, batch);
		if (leak)
			remember_loss();
	}
	if (oom && evaluate() == CUDA_ERROR_OUT_OF_MEMORY) {
		fprintf(stderr, "evaluate: out of memory\n");
		status = 1;
	}
	if (wait) {
		puts("waiting");
		fflush(stdout);
		for (unsigned int left = 600; left;)	/* a signal for a snapshot ends a sleep early */
			left = sleep(left);
	}
	for (unsigned int i = 0; i < LAYERS; i++) {
		CHECK(cuMemFree(weights[i]));
		CHECK(cuMemFree(moments[i]));
	}
	return status;		/* the context goes with the process, as with the runtime */
}
