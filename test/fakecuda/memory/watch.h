/*
 * watch.h - a thread's calls, told to a test as they begin and end (fakecuda_watch).
 */
#ifndef FC_WATCH_H
#define FC_WATCH_H

#include "test/fakecuda/fakecuda.h"

/* NULL: nobody watches the calling thread. */
extern __thread fakecuda_watch_fn *fc_watching;

/* The calling thread is watched: its call of @name begins (@result -1), or ends with @result. No
 * lock is held. */
void fc_watch_tell(const char *name, int result);

#endif
