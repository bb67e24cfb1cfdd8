/*
 * beside.h - small programs in which another thread's capture begins just before one of the calls that the
 * driver sees, the library's own calls included.
 *
 * DO makes every call that counts. During a capture in GLOBAL mode the driver refuses some calls, and the
 * capture is lost. If the driver alone, without the library, refuses the call as well, DO repeats it when the
 * capture is over.
 *
 * Thread context: the only thread of a program; beside.c owns the thread that captures.
 */
#ifndef TEST_MODEL_BESIDE_H
#define TEST_MODEL_BESIDE_H

#include "test/model/scenario.h"

#define DO_GIVES(expected, name, ...) \
	do { \
		CUresult done_; \
		\
		step_begin(#name); \
		done_ = name(__VA_ARGS__); \
		if (step_end(done_)) \
			done_ = name(__VA_ARGS__); \
		must(done_ == (expected), "%s: CUresult %d", #name, (int)done_); \
	} while (0)
#define DO(name, ...) DO_GIVES(CUDA_SUCCESS, name, __VA_ARGS__)

void step_begin(const char *name);
bool step_end(CUresult result);		/* true: refused because of the capture */

/* Call cuCtxSynchronize, not as a step: a capture that spans several steps ends before it. */
void synchronise(void);

/* With BESIDE_EXPORTER: 5000 bytes of another process, exported before the program began. */
CUipcMemHandle exported(void);

#define PROGRAM(name, environment, what) void beside_##name(struct scene *scene);
#include "test/model/beside.def"
#undef PROGRAM

#endif
