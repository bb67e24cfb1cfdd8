/*
 * ipc.h - memory and events of another process.
 */
#ifndef FC_IPC_H
#define FC_IPC_H

#include "test/fakecuda/state.h"

/* fc_ipc_from_pool - did @a (FC_MEM_IPC) come by cuMemPoolImportPointer? */
bool fc_ipc_from_pool(const struct fc_alloc *a);

/* An event that processes share: what was recorded last, and what of it has been reached. */
struct fc_ipc_event;

/* fc_ipc_event_record - a new record of @e is being submitted as @op. */
void fc_ipc_event_record(struct fc_event *e, struct fc_op *op);
/* fc_ipc_event_resolve - complete that record if it can be: the other process cannot move this
 * process's clock. */
void fc_ipc_event_resolve(struct fc_op *op);
/* fc_ipc_event_done - is the last record, of whatever process, reached? */
bool fc_ipc_event_done(const struct fc_event *e);
/* fc_ipc_event_marker - a work whose start waits for that. */
CUresult fc_ipc_event_marker(struct fc_event *e, struct fc_ctx *ctx, struct fc_work **ret_work);
void fc_ipc_event_drop(struct fc_event *e);

#endif
