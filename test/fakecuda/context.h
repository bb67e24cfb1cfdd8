/*
 * context.h - contexts as devices, green contexts and the reset need them.
 */
#ifndef FC_CONTEXT_H
#define FC_CONTEXT_H

#include "test/fakecuda/state.h"

/* fc_ctx_new - a context of @dev with a handle, active, refs 1 (the handle's). NULL: no memory. */
struct fc_ctx *fc_ctx_new(struct fc_device *dev, unsigned int flags, struct fc_ctx *base);

/* fc_ctx_end - wait for its work, then take away streams, events, modules, memory: what a
 * destroyed, released or reset context loses. Pool, graph and VMM memory stays. */
CUresult fc_ctx_end(struct fc_ctx *ctx, const char *why);

/* fc_ctx_drop - its handle becomes invalid. */
void fc_ctx_drop(struct fc_ctx *ctx);

/* fc_ctx_push - on the calling thread's stack. */
CUresult fc_ctx_push(struct fc_ctx *ctx);

/* What other files take away in fc_ctx_end. */
void fc_event_ctx_ended(struct fc_ctx *ctx);
void fc_module_ctx_ended(struct fc_ctx *ctx);
void fc_array_ctx_ended(struct fc_ctx *ctx);
void fc_external_ctx_ended(struct fc_ctx *ctx);
void fc_mem_ctx_ended(struct fc_ctx *ctx);
void fc_pool_ctx_ended(const struct fc_ctx *ctx);

#endif
