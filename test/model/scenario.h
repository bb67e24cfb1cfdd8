/*
 * scenario.h - small programs, each correct by CUDA's rules, that a wrong reuse of memory breaks.
 *
 * A scenario is a function scenario_NAME and a row of scenarios.def. Each runs in its own process on the fake
 * driver, whose race detector and hang oracle end it with status 66 and 67. Any other fault ends it with 1.
 *
 * Thread context: a scenario's own threads.
 */
#ifndef TEST_MODEL_SCENARIO_H
#define TEST_MODEL_SCENARIO_H

#include "test/apps/drv.h"

#define MIB ((size_t)1 << 20)
#define BIG (30 * MIB)			/* more than any free block has, so it gets its own segment */
#define WORDS 1024u
#define SLOW_NS UINT64_C(10000000000)	/* longer than the library watches the clock */

struct scene {
	CUcontext context[2];
	CUfunction fill[2], copy[2], await[2];
	CUstream s, t, u;		/* of the first context, non-blocking */
};

/* Return a function of the fake driver's control interface. */
void *control(const char *name);

/* Make the first device's primary context current, with streams. @contexts 2: also open the second device's. */
void scene_open(struct scene *scene, int contexts);
/* Run @what in four threads at once, each with its number (0 to 3), in the first device's primary context. */
void scene_together(void (*what)(unsigned int number));
/* From here on let kernels that fill last so long that they stay pending until somebody waits. */
void slow_from_here(void);

void must(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool cached(void);			/* the cache serves this process */

/* cudaMalloc, cudaFree and their stream-ordered forms. Each tells the race detector of the block. */
CUdeviceptr get(size_t bytes);
CUdeviceptr get_async(size_t bytes, CUstream stream);
void give(CUdeviceptr ptr);
void give_async(CUdeviceptr ptr, CUstream stream);
/* Allocate and free a pile: more than the option `limbo` lets wait, so the next request may have to wait. */
#define PILE 100u
struct pile { CUdeviceptr block[PILE]; };
void get_pile(struct pile *pile);
void give_pile(const struct pile *pile);

/* Fill WORDS words with @value, on @stream of context @which. */
void fill_in(struct scene *scene, int which, CUstream stream, CUdeviceptr ptr, uint32_t value);
void fill(struct scene *scene, CUstream stream, CUdeviceptr ptr, uint32_t value);
void expect_words(CUstream stream, CUdeviceptr ptr, uint32_t value);	/* in the order of @stream */

/* flag_await: launch a kernel on @stream that ends when the flag is set. flag_set: set it, as no stream of the
 * program. */
CUdeviceptr flag_new(void);
void flag_await(struct scene *scene, int which, CUstream stream, CUdeviceptr flag);
void flag_set(struct scene *scene, CUdeviceptr flag);

#define SCENARIO(name, rules, environment, alone, what) void scenario_##name(void);
#include "test/model/scenarios.def"
#undef SCENARIO

#endif
