/*
 * scenarios_many.c - what comes and goes by the thousand (see scenario.h).
 *
 * Thread context: one thread.
 */
#include "test/model/scenario.h"

#define CONTEXTS 4200u

/* A free of the last context's memory is waited for as one of the first's is. The device has 96 MiB. */
void scenario_many_contexts(void)
{
	CUctxCreateParams params = { 0 };
	struct scene scene;
	CUcontext context;
	CUdeviceptr p;

	scene_open(&scene, 1);
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		CHECK(cuCtxCreate(&context, &params, 0, 0));
		CHECK(cuMemAlloc(&p, 4096));
		CHECK(cuCtxDestroy(context));
	}
	CHECK(cuCtxSetCurrent(scene.context[0]));
	slow_from_here();
	fill(&scene, scene.t, flag_new(), 1);
	p = get(60 * MIB);
	fill(&scene, scene.s, p, 1);
	give(p);
	p = get(56 * MIB);
	fill(&scene, scene.t, p, 2);
	expect_words(scene.t, p, 2);
}
