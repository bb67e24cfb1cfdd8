/*
 * scenario.h - small programs, each right by CUDA's rules, that a wrong reuse of memory breaks.
 *
 * A scenario is a function scenario_NAME and a row of scenarios.def; each runs in a process of its
 * own on the fake driver, whose race detector and hang oracle end it with 66 and 67. What is wrong
 * otherwise ends it with 1.
 *
 * Thread context: a scenario's own threads.
 */
#ifndef TEST_MODEL_SCENARIO_H
#define TEST_MODEL_SCENARIO_H

#include "test/apps/drv.h"

#define MIB ((size_t)1 << 20)
#define BIG (30 * MIB)			/* no free block has as much: a segment of its own */
#define WORDS 1024u
#define SLOW_NS UINT64_C(10000000000)	/* longer than anything looks at the clock for */

struct scene {
	CUcontext context[2];
	CUfunction fill[2], copy[2], await[2];
	CUstream s, t, u;		/* of the first context, non-blocking */
};

/* A function of the fake driver's control interface. */
void *control(const char *name);

/* The first device's primary context, current; its streams; @contexts 2: the second device's too. */
void scene_open(struct scene *scene, int contexts);
/* Threads 0 to 3 do @what at once, each with its number, in the primary context of the first device. */
void scene_together(void (*what)(unsigned int number));
/* From here on kernels that fill last so long that they are pending unless somebody waits. */
void slow_from_here(void);

void must(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool cached(void);			/* the cache serves this process */

/* cudaMalloc and cudaFree and their kin; the race detector is told of each block. */
CUdeviceptr get(size_t bytes);
CUdeviceptr get_async(size_t bytes, CUstream stream);
void give(CUdeviceptr ptr);
void give_async(CUdeviceptr ptr, CUstream stream);
/* More than may wait for the GPU without a limit, freed: what comes next may have to wait. */
#define PILE 100u
struct pile { CUdeviceptr block[PILE]; };
void get_pile(struct pile *pile);
void give_pile(const struct pile *pile);

/* WORDS words of @value, on @stream of context @which. */
void fill_in(struct scene *scene, int which, CUstream stream, CUdeviceptr ptr, uint32_t value);
void fill(struct scene *scene, CUstream stream, CUdeviceptr ptr, uint32_t value);
void expect_words(CUstream stream, CUdeviceptr ptr, uint32_t value);	/* in the order of @stream */

/* A kernel on @stream ends when the flag is set, which a stream of nobody else's does. */
CUdeviceptr flag_new(void);
void flag_await(struct scene *scene, int which, CUstream stream, CUdeviceptr flag);
void flag_set(struct scene *scene, CUdeviceptr flag);

#define SCENARIO(name, rules, environment, alone, what) void scenario_##name(void);
#include "test/model/scenarios.def"
#undef SCENARIO

#endif
