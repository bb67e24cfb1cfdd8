/*
 * state.h - configuration, the lock, and what each file must undo in fakecuda_reset.
 */
#ifndef FC_STATE_H
#define FC_STATE_H

#include "test/fakecuda/internal.h"

/* fc_configure - read the environment, once. Any thread, before the lock. */
void fc_configure(void);

/* fc_lock/_unlock - fc.lock, which also keeps fork() from copying a half-made change. */
void fc_lock(void);
void fc_unlock(void);

/* fc_forked - is this a child of the process that called cuInit? No lock. */
bool fc_forked(void);

/* fc_enter_control - the lock for a control call, unless the caller is a kernel callback, which
 * has it already. */
void fc_enter_control(void);
void fc_leave_control(void);

/* fc_parse_bytes - "8GiB", "512M", "4096" -> bytes; false: malformed. */
bool fc_parse_bytes(const char *text, size_t *ret_bytes);

/* Per file, lock held, no work pending any more: forget everything. */
void fc_clock_reset(void);
void fc_device_reset(void);
void fc_context_reset(void);
void fc_stream_reset(void);
void fc_event_reset(void);
void fc_handle_reset(void);
void fc_tree_reset(void);
void fc_phys_reset(void);
void fc_pool_reset(void);
void fc_vmm_reset(void);
void fc_array_reset(void);
void fc_module_reset(void);
void fc_ipc_reset(void);
void fc_kernel_reset(void);

#endif
