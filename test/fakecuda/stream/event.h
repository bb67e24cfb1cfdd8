/*
 * event.h - events as IPC and green contexts need them.
 */
#ifndef FC_EVENT_H
#define FC_EVENT_H

#include "test/fakecuda/state.h"

/* fc_event_make - an event of @ctx with a handle. */
CUresult fc_event_make(struct fc_ctx *ctx, unsigned int flags, struct fc_event **ret_e);

/* fc_event_record_ctx - @e stands for all of @ctx submitted so far (of @green: only its streams).
 * fc_event_wait_ctx - all streams of @ctx (or @green) wait for it. */
CUresult fc_event_record_ctx(struct fc_ctx *ctx, struct fc_green *green, CUevent h);
CUresult fc_event_wait_ctx(struct fc_ctx *ctx, struct fc_green *green, CUevent h);

#endif
