/*
 * beside.h - small programs in which another thread's capture begins before any one call that the
 * driver sees, the library's own among them.
 *
 * Every call that counts is made by DO. Beside a capture in GLOBAL mode the driver refuses some, and
 * the capture is lost; then, and only where that driver alone refuses it too, the call is repeated
 * when the capture is over.
 *
 * Thread context: a program's one thread; the one that captures is beside.c's.
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
bool step_end(CUresult result);		/* true: refused for the capture's sake */

/* cuCtxSynchronize, no step: a capture that spans several ends before it. */
void synchronise(void);

/* With BESIDE_EXPORTER: 5000 bytes of another process's, exported before the program began. */
CUipcMemHandle exported(void);

#define PROGRAM(name, environment, what) void beside_##name(struct scene *scene);
#include "test/model/beside.def"
#undef PROGRAM

#endif
