/*
 * semaphore.c - semaphores of another API: a counter, raised and waited for in stream order and by
 * graph nodes, within this process.
 *
 * All semaphores of one call are one work. A wait ends when each has reached its value; what comes
 * after it comes after the signals that brought them there. All under fc.lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/graph/graph.h"
#include "test/fakecuda/memory/memory.h"

struct semaphore {
	unsigned int refs;
	int fd;
	uint64_t inode;
	uint64_t value;
};

struct semaphore_work {
	struct fc_work work;
	bool signal;
	unsigned int n;
	CUexternalSemaphore *handles;
	struct semaphore **sems;	/* counted */
	/* One of them, as the program gave it. */
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *signals;
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *waits;
};

static void put(struct semaphore *sem)
{
	if (--sem->refs)
		return;
	fc_fd_close(sem->fd, sem->inode);
	free(sem);
}

/* ---- objects ---- */

CUresult fc_cuImportExternalSemaphore(CUexternalSemaphore *extSem_out,
				      const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *semHandleDesc)
{
	struct semaphore *sem;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!extSem_out || !semHandleDesc)
		return CUDA_ERROR_INVALID_VALUE;
	if (semHandleDesc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD &&
	    semHandleDesc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	sem = calloc(1, sizeof(*sem));
	if (!sem)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sem->refs = 1;
	sem->fd = semHandleDesc->handle.fd;
	sem->inode = fc_fd_inode(sem->fd);
	*extSem_out = fc_handle_new(FC_H_EXTSEM, sem);
	if (!*extSem_out) {
		free(sem);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult fc_cuDestroyExternalSemaphore(CUexternalSemaphore extSem)
{
	struct semaphore *sem = fc_handle_get(extSem, FC_H_EXTSEM);

	if (!sem)
		return CUDA_ERROR_INVALID_HANDLE;
	fc_handle_drop(extSem);
	put(sem);
	return CUDA_SUCCESS;
}

/* ---- the work ---- */

static CUresult raise_values(struct fc_work *work, struct fc_op *op)
{
	struct semaphore_work *w = (struct semaphore_work *)work;

	for (unsigned int i = 0; i < w->n; i++) {
		uint64_t value = w->signals[i].params.fence.value;

		if (w->sems[i]->value < value)
			w->sems[i]->value = value;
		fc_race_object_signalled(op, w->sems[i]);
	}
	return CUDA_SUCCESS;
}

static bool reached(struct fc_work *work, struct fc_op *op)
{
	struct semaphore_work *w = (struct semaphore_work *)work;

	for (unsigned int i = 0; i < w->n; i++)
		if (w->sems[i]->value < w->waits[i].params.fence.value && !op->ctx->sticky)
			return false;
	for (unsigned int i = 0; i < w->n; i++)
		fc_race_object_seen(op, w->sems[i]);
	fc_race_wait_over(op);
	return true;
}

static void release(struct fc_work *work)
{
	struct semaphore_work *w = (struct semaphore_work *)work;

	for (unsigned int i = 0; w->sems && i < w->n; i++)
		if (w->sems[i])
			put(w->sems[i]);
	free(w->handles);
	free(w->sems);
	free(w->signals);
	free(w->waits);
	free(w);
}

static void *copy(const void *from, size_t size)
{
	void *p = malloc(size);

	return p ? memcpy(p, from, size) : NULL;
}

static CUresult hold(struct semaphore_work *w)
{
	for (unsigned int i = 0; i < w->n; i++) {
		struct semaphore *sem = fc_handle_get(w->handles[i], FC_H_EXTSEM);

		if (!sem)
			return CUDA_ERROR_INVALID_HANDLE;
		sem->refs++;
		w->sems[i] = sem;
	}
	return CUDA_SUCCESS;
}

/* Of @signals and @waits one is NULL. */
static CUresult make(struct fc_ctx *ctx, const CUexternalSemaphore *handles,
		     const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *signals,
		     const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *waits, unsigned int n,
		     struct fc_work **ret_work)
{
	struct semaphore_work *w;
	CUresult r;

	if (!handles || (!signals && !waits) || !n)
		return CUDA_ERROR_INVALID_VALUE;
	w = (struct semaphore_work *)fc_work_new(sizeof(*w), FC_WORK_SEMAPHORE,
						 signals ? "cuSignalExternalSemaphoresAsync" :
							   "cuWaitExternalSemaphoresAsync",
						 ctx, 0);
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->work.release = release;
	w->work.effect = signals ? raise_values : NULL;
	w->work.may_end = signals ? NULL : reached;
	w->signal = signals;
	w->n = n;
	w->handles = copy(handles, n * sizeof(*handles));
	w->sems = calloc(n, sizeof(*w->sems));
	w->signals = signals ? copy(signals, n * sizeof(*signals)) : NULL;
	w->waits = waits ? copy(waits, n * sizeof(*waits)) : NULL;
	r = w->handles && w->sems && (w->signals || w->waits) ? hold(w) :
								CUDA_ERROR_OUT_OF_MEMORY;
	if (r)
		fc_work_put(&w->work);
	else
		*ret_work = &w->work;
	return r;
}

bool fc_semaphore_waits(const struct fc_work *w)
{
	return w->kind == FC_WORK_SEMAPHORE && w->may_end == reached;
}

void fc_semaphore_describe(const struct fc_work *work, char *buf, size_t size)
{
	const struct semaphore_work *w = (const struct semaphore_work *)work;

	for (unsigned int i = 0; i < w->n; i++)
		if (w->sems[i]->value < w->waits[i].params.fence.value)
			snprintf(buf, size, "semaphore %u is %llu, wanted %llu", i,
				 (unsigned long long)w->sems[i]->value,
				 (unsigned long long)w->waits[i].params.fence.value);
}

/* ---- in streams ---- */

static CUresult submit(CUstream stream, const CUexternalSemaphore *handles,
		       const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *signals,
		       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *waits, unsigned int n)
{
	struct fc_stream *s;
	struct fc_work *w;
	CUresult r = fc_stream_get(stream, &s);

	if (r || !n)
		return r;
	r = make(s->ctx, handles, signals, waits, n, &w);
	if (r)
		return r;
	r = fc_submit(s, w, NULL);
	fc_work_put(w);
	return r;
}

CUresult fc_cuSignalExternalSemaphoresAsync(
	const CUexternalSemaphore *extSemArray,
	const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *paramsArray, unsigned int numExtSems,
	CUstream stream)
{
	return submit(stream, extSemArray, paramsArray, NULL, numExtSems);
}

CUresult fc_cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *extSemArray,
					  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray,
					  unsigned int numExtSems, CUstream stream)
{
	return submit(stream, extSemArray, NULL, paramsArray, numExtSems);
}

/* ---- in graphs ---- */

CUresult fc_graph_signal_work(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p, struct fc_work **ret_work)
{
	struct fc_ctx *ctx;
	CUresult r = p ? fc_ctx_current(&ctx) : CUDA_ERROR_INVALID_VALUE;

	return r ? r : make(ctx->base, p->extSemArray, p->paramsArray, NULL, p->numExtSems,
			    ret_work);
}

CUresult fc_graph_wait_work(const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p, struct fc_work **ret_work)
{
	struct fc_ctx *ctx;
	CUresult r = p ? fc_ctx_current(&ctx) : CUDA_ERROR_INVALID_VALUE;

	return r ? r : make(ctx->base, p->extSemArray, NULL, p->paramsArray, p->numExtSems,
			    ret_work);
}
