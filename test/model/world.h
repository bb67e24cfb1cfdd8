/*
 * world.h - one random program for the fake driver: what it has, and what it may do next.
 *
 * Every program is right by CUDA's rules and ends on every driver that keeps them: what is used on
 * two streams is ordered by events, nothing is freed while another context's work uses it, and
 * while a kernel waits for a flag nothing is called that the driver would wait in. So a race, a
 * hang, a wrong word or a refused call is the fault of whatever lies between it and the driver.
 *
 * Thread context: each thread of a program has a world of its own, and what they share is const; or
 * all have one, and take turns (model -T).
 */
#ifndef TEST_MODEL_WORLD_H
#define TEST_MODEL_WORLD_H

#include "test/apps/drv.h"

#define BLOCKS 48
#define STREAMS 7
#define CONTEXTS 3
#define GRAPHS 3
#define TURNS 3				/* threads that take turns, at most */
#define NO_CONTEXT (-2)			/* of a device that has none now */

/* What a program had occasion to do, for the totals. */
enum drew { DREW_CREATED, DREW_DESTROYED, DREW_RESET, DREW_RELEASED, DREW_GONE, DREW_SURVIVED,
	    DREW_FREED_ELSEWHERE, DREW_PEER_COPIES, DREW_COUNT };

struct kernels { CUfunction fill, copy, spin, wait_flag; };

struct context {
	CUcontext handle;		/* NULL: it has ended, or not begun */
	CUmodule module;
	struct kernels kernels;
	int device, retained;
	bool primary;
};

/* Streams of the world. 0 and 1 of each context's are its legacy and its per-thread one. */
struct stream {
	CUstream handle;
	int context;			/* index, -1: the slot is free */
	bool blocking;			/* ordered with the legacy stream of its context */
	bool tainted;			/* comes after a kernel that waits for a flag */
	bool worked;			/* surely: it was given work before a flag_wait() */
	int owner;			/* thread + 1 whose default stream it is, of those that take turns; 0: any's */
	bool ghost;			/* that thread has ended */
};

struct block {
	CUdeviceptr ptr;
	size_t bytes;
	uint32_t words;			/* 0: the slot is free */
	uint32_t value;			/* in every word, if @known */
	bool known, async, fresh;	/* fresh: no work has used it yet */
	int context;			/* it dies with it, if it is not async; or NO_CONTEXT */
	int device;			/* while it has no context */
	int stream;			/* of its last use, -1: seen complete by the host */
	int graphs;			/* that use it */
};

struct graph {
	CUgraphExec exec;		/* NULL: the slot is free */
	int context;
	int blocks[4], count;
	uint32_t value;
	int stream;			/* last launched on; -1: complete */
};

struct world {
	uint64_t state;			/* of the random numbers */
	struct context context[CONTEXTS];
	int current, devices;
	struct stream stream[STREAMS];
	struct block block[BLOCKS];
	struct graph graph[GRAPHS];
	CUevent events[CONTEXTS];	/* one a context, recorded anew for every wait */
	CUevent ends[TURNS];		/* a thread's last turn: recorded on its own stream, in context 0 */
	volatile uint32_t *flag;	/* pinned: what waiting kernels wait for */
	uint32_t flag_value;		/* they wait for this; 0: none waits */
	unsigned int first_works;	/* words behind the flag that a stream's first work has written */
	bool left[CONTEXTS][CONTEXTS];	/* cudaMalloc's memory of the first, freed on a stream of the second's */
	bool one_stream;		/* only stream 0 is given work for now */
	bool tight;			/* memory may run out */
	bool alone;			/* no other thread at the same time */
	int thread, threads;		/* whose turn it is, of how many */
	unsigned long steps, refused, reused, drawn[DREW_COUNT];
	CUdeviceptr seen[64];		/* addresses freed lately: how often they come back */
};

unsigned int draw(struct world *world, unsigned int below);
/* A failure of the program: says where, with the seed, and ends it with status 1. */
#define FAULT(world, ...) fault(world, __FILE__, __LINE__, __VA_ARGS__)
void fault(struct world *world, const char *file, int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 4, 5)));
#define MUST(world, call) \
	do { \
		CUresult must_result = (call); \
		if (must_result) \
			FAULT(world, "%s: CUresult %d", #call, (int)must_result); \
	} while (0)

void world_open(struct world *world, uint64_t seed, int thread, bool alone);
void world_step(struct world *world);
void world_close(struct world *world);

/* memory.c */
void memory_alloc(struct world *world);
void memory_alloc_async(struct world *world);
void memory_free(struct world *world, int block);
void memory_free_async(struct world *world, int block);
void memory_check(struct world *world, int block);
int any_block(struct world *world, bool known);
/* The host has seen everything of @context (-1: of all) complete. */
void memory_seen(struct world *world, int context);

void memory_note_free(CUdeviceptr ptr);

/* contexts.c */
void context_open(struct world *world, int c, int device, bool primary);
void context_first_stream(struct world *world);
void context_flag(struct world *world);
void context_change(struct world *world);
void context_begin_or_end(struct world *world);
void context_synchronise_all(struct world *world);

/* work.c */
void use(struct world *world, int block, int stream);	/* order what comes next on @stream */
void taint_of_legacy(struct world *world, int stream);
int any_stream(struct world *world, int context);
bool is_foreign(const struct world *world, int stream);	/* only another thread can name it */
void work_fill(struct world *world);
void work_copy(struct world *world);
void work_peer_copy(struct world *world);
void work_programmatic(struct world *world);
void work_host_function(struct world *world);
void flag_wait(struct world *world);
void flag_set(struct world *world);
void streams_change(struct world *world);
void synchronise(struct world *world);

/* turns.c: one program of @threads threads, one call at a time */
void turns_run(uint64_t seed, int threads,
	       bool (*step)(struct world *world, uint64_t seed, int number));	/* false: it was the last */

/* graphs.c */
void graph_make(struct world *world);
void graph_launch(struct world *world);
void graph_drop(struct world *world, int graph);
void capture_refused(struct world *world);

#endif
