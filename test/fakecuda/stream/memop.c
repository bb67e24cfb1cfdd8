/*
 * memop.c - stream memory operations: a stream waits for a word in memory, or writes one.
 *
 * One work for a whole batch. Its operations happen one after the other in may_end, which the
 * clock asks whenever it is looked at: a wait holds the batch up, a write happens as soon as it is
 * reached. How far a batch has come is kept in op->user. Words lie in device memory or in host
 * memory the driver knows. Remote writes cannot be flushed on this device: 801.
 *
 * All under fc.lock.
 */
#include "test/fakecuda/stream/waiting.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BATCH 256

struct memop_work {
	struct fc_work work;
	unsigned int count;
	bool waits;
	CUstreamBatchMemOpParams params[];
};

static const unsigned int no_barrier = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;

#define FAULTED UINTPTR_MAX	/* in op->user: a word was not there */

static bool is_wait(const CUstreamBatchMemOpParams *p)
{
	return p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
	       p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_write(const CUstreamBatchMemOpParams *p)
{
	return p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
	       p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static unsigned int width_of(const CUstreamBatchMemOpParams *p)
{
	return p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
	       p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4;
}

static struct fc_word word_of(const CUstreamBatchMemOpParams *p)
{
	static const enum fc_until until[] = {
		[CU_STREAM_WAIT_VALUE_GEQ] = FC_UNTIL_GEQ, [CU_STREAM_WAIT_VALUE_EQ] = FC_UNTIL_EQ,
		[CU_STREAM_WAIT_VALUE_AND] = FC_UNTIL_AND,
		[CU_STREAM_WAIT_VALUE_NOR] = FC_UNTIL_NOR,
	};
	struct fc_word word = { .ptr = p->waitValue.address, .width = width_of(p) };

	word.value = word.width == 8 ? p->waitValue.value64 : p->waitValue.value;
	word.until = is_wait(p) ? until[p->waitValue.flags & 3] : FC_UNTIL_EQ;
	return word;
}

/* ---- what happens ---- */

static void *word_now(const CUstreamBatchMemOpParams *p)
{
	return fc_word_find(is_wait(p) ? p->waitValue.address : p->writeValue.address, width_of(p));
}

static void write_word(const CUstreamBatchMemOpParams *p, void *at)
{
	if (width_of(p) == 8)
		__atomic_store_n((uint64_t *)at, p->writeValue.value64, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)at, p->writeValue.value, __ATOMIC_RELEASE);
}

static bool may_end(struct fc_work *w, struct fc_op *op)
{
	struct memop_work *m = (struct memop_work *)w;
	uintptr_t at = (uintptr_t)op->user;

	for (; at < m->count && !op->ctx->sticky; op->user = (void *)++at) {
		const CUstreamBatchMemOpParams *p = &m->params[at];
		struct fc_word word;
		void *where;

		if (!is_wait(p) && !is_write(p))
			continue;
		where = word_now(p);
		if (!where) {
			op->user = (void *)FAULTED;
			break;
		}
		word = word_of(p);
		if (is_wait(p) && !fc_word_meets(&word, fc_word_load(where, word.width)))
			return false;
		if (is_wait(p)) {
			fc_race_word_seen(op, p->waitValue.address);
		} else {
			write_word(p, where);
			fc_race_word_written(op, p->writeValue.address);
		}
	}
	if (m->waits)
		fc_race_wait_over(op);
	return true;
}

static CUresult effect(struct fc_work *w, struct fc_op *op)
{
	(void)w;
	return op->user == (void *)FAULTED ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

/* ---- making them ---- */

static CUresult check(const CUstreamBatchMemOpParams *p)
{
	const unsigned int flush = CU_STREAM_WAIT_VALUE_FLUSH;

	if (is_wait(p) && (p->waitValue.flags & ~(3u | flush)))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_write(p) && (p->writeValue.flags & ~no_barrier))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_wait(p) || is_write(p)) {
		if (!word_now(p))
			return CUDA_ERROR_INVALID_VALUE;
		return is_wait(p) && (p->waitValue.flags & flush) ? CUDA_ERROR_NOT_SUPPORTED :
								    CUDA_SUCCESS;
	}
	switch (p->operation) {
	case CU_STREAM_MEM_OP_BARRIER:
		return p->memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU ?
			       CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult fc_work_memop(struct fc_ctx *ctx, const char *name, unsigned int count,
		       const CUstreamBatchMemOpParams *params, unsigned int flags,
		       struct fc_work **ret_work)
{
	struct memop_work *m;

	if (!count || count > MAX_BATCH || !params || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		CUresult r = check(&params[i]);

		if (r)
			return r;
	}
	m = (struct memop_work *)fc_work_new(sizeof(*m) + count * sizeof(m->params[0]),
					     FC_WORK_MEMOP, name, ctx, 0);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->count = count;
	memcpy(m->params, params, count * sizeof(m->params[0]));
	m->work.may_end = may_end;
	m->work.effect = effect;
	for (unsigned int i = 0; i < count; i++) {
		struct fc_word word = word_of(&params[i]);

		m->waits |= is_wait(&params[i]);
		if ((is_wait(&params[i]) || is_write(&params[i])) &&
		    fc_work_touch(&m->work, word.ptr, word.width, is_write(&params[i]))) {
			fc_work_put(&m->work);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	*ret_work = &m->work;
	return CUDA_SUCCESS;
}

bool fc_memop_waits(const struct fc_work *w)
{
	return w->kind == FC_WORK_MEMOP && ((const struct memop_work *)w)->waits;
}

bool fc_memop_pending(const struct fc_op *op, struct fc_word *ret_word)
{
	const struct memop_work *m = (const struct memop_work *)op->work;
	uintptr_t at = (uintptr_t)op->user;

	if (op->work->kind != FC_WORK_MEMOP || at >= m->count || !is_wait(&m->params[at]))
		return false;
	*ret_word = word_of(&m->params[at]);
	return true;
}

/* ---- the entries ---- */

static CUresult submit(CUstream stream, const char *name, unsigned int count,
		       const CUstreamBatchMemOpParams *params, unsigned int flags)
{
	struct fc_stream *s;
	struct fc_work *w;
	CUresult r = fc_stream_get(stream, &s);

	if (r)
		return r;
	r = fc_work_memop(s->ctx, name, count, params, flags, &w);
	if (r)
		return r;
	r = fc_submit(s, w, NULL);
	fc_work_put(w);
	return r;
}

CUresult fc_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				   unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .waitValue = {
		.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = addr, .flags = flags } };

	p.waitValue.value = value;
	return submit(stream, "cuStreamWaitValue32", 1, &p, 0);
}

CUresult fc_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
				   unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .waitValue = {
		.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64, .address = addr, .flags = flags } };

	p.waitValue.value64 = value;
	return submit(stream, "cuStreamWaitValue64", 1, &p, 0);
}

CUresult fc_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				    unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .writeValue = {
		.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = addr, .flags = flags } };

	p.writeValue.value = value;
	if (flags)		/* the first ABI alone knows any */
		return CUDA_ERROR_INVALID_VALUE;
	return submit(stream, "cuStreamWriteValue32", 1, &p, 0);
}

CUresult fc_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
				    unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .writeValue = {
		.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = addr, .flags = flags } };

	p.writeValue.value64 = value;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	return submit(stream, "cuStreamWriteValue64", 1, &p, 0);
}

CUresult fc_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
				  CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	return submit(stream, "cuStreamBatchMemOp", count, paramArray, flags);
}

/* The first ABI differs in what a device must support, not in what happens: only barriers came with
 * the second, and one flag went. */
CUresult fc_cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				unsigned int flags)
{
	return fc_cuStreamWaitValue32_v2(stream, addr, value, flags);
}

CUresult fc_cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
				unsigned int flags)
{
	return fc_cuStreamWaitValue64_v2(stream, addr, value, flags);
}

CUresult fc_cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				 unsigned int flags)
{
	return fc_cuStreamWriteValue32_v2(stream, addr, value,
					 flags & ~no_barrier);
}

CUresult fc_cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
				 unsigned int flags)
{
	return fc_cuStreamWriteValue64_v2(stream, addr, value,
					 flags & ~no_barrier);
}

CUresult fc_cuStreamBatchMemOp(CUstream stream, unsigned int count,
			       CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	for (unsigned int i = 0; paramArray && i < count; i++)
		if (paramArray[i].operation == CU_STREAM_MEM_OP_BARRIER)
			return CUDA_ERROR_INVALID_VALUE;
	return fc_cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}
