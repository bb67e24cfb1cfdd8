/*
 * misc.c - the rest: texts of errors, the profiler, logs, core dumps, checkpoints. Lock: fc.lock
 * (not needed by the texts, which are constant).
 */
#include "test/fakecuda/state.h"

#include <string.h>
#include <unistd.h>

struct text {
	CUresult code;
	const char *name, *text;
};

static const struct text texts[] = {
#define X(code, text) { code, #code, text },
#include "test/fakecuda/errors.def"
#undef X
};

static const struct text *find(CUresult code)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].code == code)
			return &texts[i];
	return NULL;
}

CUresult fc_cuGetErrorName(CUresult error, const char **pStr)
{
	const struct text *t = find(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = t ? t->name : NULL;
	return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuGetErrorString(CUresult error, const char **pStr)
{
	const struct text *t = find(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = t ? t->text : NULL;
	return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuProfilerInitialize(const char *configFile, const char *outputFile,
				 CUoutput_mode outputMode)
{
	(void)outputMode;
	return configFile && outputFile ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuProfilerStart(void)
{
	struct fc_ctx *ctx;

	return fc_ctx_current(&ctx);
}

CUresult fc_cuProfilerStop(void)
{
	struct fc_ctx *ctx;

	return fc_ctx_current(&ctx);
}

CUresult fc_cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
				       CUflushGPUDirectRDMAWritesScope scope)
{
	struct fc_ctx *ctx;

	(void)target;
	(void)scope;
	return fc_ctx_current(&ctx);
}

/* ---- logs: there are none ---- */

CUresult fc_cuLogsRegisterCallback(CUlogsCallback callbackFunc, void *userData,
				   CUlogsCallbackHandle *callback_out)
{
	(void)userData;
	if (!callbackFunc || !callback_out)
		return CUDA_ERROR_INVALID_VALUE;
	*callback_out = fc_handle_new(FC_H_RESOURCE, &fc);
	return *callback_out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fc_cuLogsUnregisterCallback(CUlogsCallbackHandle callback)
{
	if (!fc_handle_get(callback, FC_H_RESOURCE))
		return CUDA_ERROR_INVALID_VALUE;
	fc_handle_drop(callback);
	return CUDA_SUCCESS;
}

CUresult fc_cuLogsCurrent(CUlogIterator *iterator_out, unsigned int flags)
{
	if (!iterator_out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*iterator_out = 0;
	return CUDA_SUCCESS;
}

CUresult fc_cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size,
			       unsigned int flags)
{
	(void)iterator;
	if (!buffer || !size || !*size || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*buffer = 0;
	*size = 0;
	return CUDA_SUCCESS;
}

/* ---- checkpoints: of this process only, and without moving memory out ---- */

static CUprocessState process_state = CU_PROCESS_STATE_RUNNING;

static CUresult step(int pid, CUprocessState from, CUprocessState to)
{
	if (pid != getpid())
		return CUDA_ERROR_INVALID_VALUE;
	if (process_state != from)
		return CUDA_ERROR_ILLEGAL_STATE;
	process_state = to;
	return CUDA_SUCCESS;
}

CUresult fc_cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	if (!state || pid != getpid())
		return CUDA_ERROR_INVALID_VALUE;
	*state = process_state;
	return CUDA_SUCCESS;
}

CUresult fc_cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	if (!tid || pid != getpid())
		return CUDA_ERROR_INVALID_VALUE;
	*tid = getpid();
	return CUDA_SUCCESS;
}

CUresult fc_cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	(void)args;
	return step(pid, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
}

CUresult fc_cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	(void)args;
	return step(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
}

CUresult fc_cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	(void)args;
	return step(pid, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
}

CUresult fc_cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	(void)args;
	return step(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}
