/*
 * stream.h - streams as contexts, green contexts and events need them.
 */
#ifndef FC_STREAM_H
#define FC_STREAM_H

#include "test/fakecuda/state.h"

/* fc_stream_new - in @ctx (a base context), without a handle. NULL: no memory. */
struct fc_stream *fc_stream_new(struct fc_ctx *ctx, unsigned int flags, int priority);

/* fc_stream_make - what the create entries do: check, make, give a handle. */
CUresult fc_stream_make(struct fc_ctx *ctx, struct fc_green *green, unsigned int flags,
			int priority, CUstream *ret_handle);

/* fc_stream_destroy - its handle at once, the stream after its last operation. */
void fc_stream_destroy(struct fc_stream *s);

/* All streams of a context that ends; those of a thread that ends. */
void fc_stream_ctx_ended(struct fc_ctx *ctx);
void fc_stream_thread_ended(uint64_t thread_id);

/* fc_stream_marker - an operation without work or duration at the end of @s. */
CUresult fc_stream_marker(struct fc_stream *s, const char *name, struct fc_op **ret_op);

/* fc_stream_sync - wait for all of @s as cuStreamSynchronize does, sticky errors included. */
CUresult fc_stream_sync(struct fc_stream *s, const char *why);

#endif
