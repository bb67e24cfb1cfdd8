/*
 * world.h - the state of one random program for the fake driver, and its possible next steps.
 *
 * Every program is correct by CUDA's rules and ends on every driver that keeps them: memory that two streams
 * use is ordered by events, no memory is freed while another context's work uses it, and while a kernel waits
 * for a flag the program makes no call in which the driver would wait. So a race, a hang, a wrong word or a
 * refused call is the fault of a library between the program and the driver.
 *
 * Thread context: each thread of a program has its own world, and the threads share only constants; or all
 * threads share one world and take turns (model -T).
 */
#ifndef TEST_MODEL_WORLD_H
#define TEST_MODEL_WORLD_H

#include "test/apps/drv.h"

#define BLOCKS 48
#define STREAMS 7
#define CONTEXTS 3
#define GRAPHS 3
#define TURNS 3				/* threads that take turns, at most */
#define NO_CONTEXT (-2)			/* the device has no context now */

/* What a program did, for the totals. */
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

/* Streams of the world. Streams 0 and 1 of each context are its legacy and its per-thread stream. */
struct stream {
	CUstream handle;
	int context;			/* index, -1: the slot is free */
	bool blocking;			/* ordered with the legacy stream of its context */
	bool tainted;			/* its work comes after a kernel that waits for a flag */
	bool worked;			/* it was certainly given work before a flag_wait() */
	int owner;			/* thread + 1 that has it as its default stream (-T); 0: any thread */
	bool ghost;			/* that thread has ended */
};

struct block {
	CUdeviceptr ptr;
	size_t bytes;
	uint32_t words;			/* 0: the slot is free */
	uint32_t value;			/* in every word, if @known */
	bool known, async, fresh;	/* fresh: no work has used it yet */
	int context;			/* the context that ends it, unless @async; or NO_CONTEXT */
	int device;			/* its device, while it has no context */
	int stream;			/* of its last use; -1: the host has seen that complete */
	int graphs;			/* how many graphs use it */
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
	CUevent events[CONTEXTS];	/* one for each context, recorded again for every wait */
	CUevent ends[TURNS];		/* end of a thread's last turn, recorded on its own stream in context 0 */
	volatile uint32_t *flag;	/* pinned memory for which kernels wait */
	uint32_t flag_value;		/* the value for which they wait; 0: none waits */
	unsigned int first_works;	/* words behind the flag that first works of streams have written */
	bool left[CONTEXTS][CONTEXTS];	/* cudaMalloc memory of [i] was freed on a stream of [j] */
	bool one_stream;		/* only stream 0 is given work for now */
	bool tight;			/* memory may run out */
	bool alone;			/* no other thread runs at the same time */
	int thread, threads;		/* the thread whose turn it is, of how many */
	unsigned long steps, refused, reused, drawn[DREW_COUNT];
	CUdeviceptr seen[64];		/* addresses freed lately, to count how often they return */
};

unsigned int draw(struct world *world, unsigned int below);
/* Report a failure of the program with its place and seed, and end the program with status 1. */
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
/* Note that the host has seen all work of @context (-1: of all contexts) complete. */
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
void use(struct world *world, int block, int stream);	/* order the next work on @stream after @block's */
void taint_of_legacy(struct world *world, int stream);
int any_stream(struct world *world, int context);
bool is_foreign(const struct world *world, int stream);	/* only another thread can use it */
void work_fill(struct world *world);
void work_copy(struct world *world);
void work_peer_copy(struct world *world);
void work_programmatic(struct world *world);
void work_host_function(struct world *world);
void flag_wait(struct world *world);
void flag_set(struct world *world);
void streams_change(struct world *world);
void synchronise(struct world *world);

/* turns.c: run one program of @threads threads, one call at a time. @step returns false after the last step. */
void turns_run(uint64_t seed, int threads,
	       bool (*step)(struct world *world, uint64_t seed, int number));

/* graphs.c */
void graph_make(struct world *world);
void graph_launch(struct world *world);
void graph_drop(struct world *world, int graph);
void capture_refused(struct world *world);

#endif
