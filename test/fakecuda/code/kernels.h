/*
 * kernels.h - what kernels do here, and for how long: by name.
 */
#ifndef FC_KERNELS_H
#define FC_KERNELS_H

#include "test/fakecuda/state.h"

/* The values of a launch's parameters, laid out as the kernel's `.entry` says. */
struct fc_args {
	const struct fc_kernel *k;
	void **args;		/* k->n_params pointers */
};

/* fc_kernel_ns - how long a kernel of this name runs. */
uint64_t fc_kernel_ns(const char *name);

/* fc_kernel_touch - note in @w what the kernel reads and writes, as far as that is known: exactly
 * for the built-in ones, "a use" of every pointer among the parameters for all others. */
int fc_kernel_touch(struct fc_work *w, const struct fc_args *a);

/* fc_kernel_run - its effect. 0, or the error that poisons the context. */
CUresult fc_kernel_run(const struct fc_args *a);

#endif
