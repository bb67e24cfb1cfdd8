/*
 * clock.h - between the files of the engine: op.c, clock.c, wait.c, host.c.
 */
#ifndef FC_CLOCK_H
#define FC_CLOCK_H

#include "test/fakecuda/state.h"

/* fc_op_drop_deps - @op needs to know no more what it came after. */
void fc_op_drop_deps(struct fc_op *op);

/* fc_op_complete - @op is at its end, its effect has happened: start what waited for it. */
void fc_op_complete(struct fc_op *op);

/* fc_clock_next - jump to the next instant at which something ends and let it. False: nothing is
 * under way that the clock could bring to its end. */
bool fc_clock_next(void);

/* fc_host_start - hand the host function of @op (EXECUTING) to the worker thread. 0 or -errno. */
int fc_host_start(struct fc_op *op);

/* fc_host_settle - give up the lock until the host functions now executing have returned, for at
 * most 50 real milliseconds each: one that waits for its caller must not hang it. */
void fc_host_settle(void);

/* fc_host_reset - wait until none executes, forget those queued. */
void fc_host_reset(void);

/* fc_stream_op_done - a destroyed stream goes for good with its last operation. stream.c. */
void fc_stream_op_done(struct fc_op *op);

#endif
