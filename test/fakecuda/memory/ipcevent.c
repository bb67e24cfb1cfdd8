/*
 * ipcevent.c - events that processes share.
 *
 * Each process has a virtual clock of its own, so what they share is only how far an event has got:
 * one page with two counters, records and reached ones. Waiting for it is an operation that may not
 * start before; and since another process's wait cannot move this process's clock, a record lets
 * the clock run until it is reached, as far as that is possible. Lock: fc.lock.
 */
#define _GNU_SOURCE
#include "test/fakecuda/memory/ipc.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/fakecuda/stream/clock.h"
#include "test/fakecuda/stream/event.h"
#include "test/fakecuda/memory/memory.h"

#define EVENT_MAGIC 0x4643495045563031ULL

struct page {
	atomic_ullong recorded, reached;
};

struct fc_ipc_event {
	int fd;
	uint64_t inode;
	struct page *page;
};

struct event_handle {
	uint64_t magic, inode;
	int32_t pid, fd;
};

_Static_assert(sizeof(struct event_handle) <= CU_IPC_HANDLE_SIZE, "fits an IPC handle");

static CUresult attach(struct fc_event *e, int fd)
{
	struct fc_ipc_event *ipc = calloc(1, sizeof(*ipc));
	void *p = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (!ipc || p == MAP_FAILED) {
		free(ipc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ipc->fd = fd;
	ipc->inode = fc_fd_inode(fd);
	ipc->page = p;
	e->ipc = ipc;
	return CUDA_SUCCESS;
}

void fc_ipc_event_drop(struct fc_event *e)
{
	if (!e->ipc)
		return;
	munmap(e->ipc->page, sizeof(struct page));
	fc_fd_close(e->ipc->fd, e->ipc->inode);
	free(e->ipc);
	e->ipc = NULL;
}

/* ---- record ---- */

struct record {
	struct fc_event *e;	/* counted */
	uint64_t value;
};

static void reached(struct fc_op *op)
{
	struct record *r = op->user;
	atomic_ullong *at = &r->e->ipc->page->reached;
	unsigned long long old = atomic_load(at);

	while (old < r->value && !atomic_compare_exchange_weak(at, &old, r->value))
		;
	fc_event_put(r->e);
	free(r);
	op->user = NULL;
}

void fc_ipc_event_record(struct fc_event *e, struct fc_op *op)
{
	struct record *r = malloc(sizeof(*r));

	if (!r)
		return;
	r->e = fc_event_ref(e);
	r->value = atomic_fetch_add(&e->ipc->page->recorded, 1) + 1;
	op->user = r;
	op->done = reached;
}

void fc_ipc_event_resolve(struct fc_op *op)
{
	while (!fc_op_done(op) && fc_clock_next())
		;
}

bool fc_ipc_event_done(const struct fc_event *e)
{
	return atomic_load(&e->ipc->page->reached) >= atomic_load(&e->ipc->page->recorded);
}

/* ---- wait ---- */

struct wait_work {
	struct fc_work work;
	struct fc_event *e;	/* counted */
	uint64_t value;
};

static bool may_start(struct fc_work *w, struct fc_op *op)
{
	struct wait_work *wait = (struct wait_work *)w;

	(void)op;
	return atomic_load(&wait->e->ipc->page->reached) >= wait->value;
}

static void release_wait(struct fc_work *w)
{
	struct wait_work *wait = (struct wait_work *)w;

	fc_event_put(wait->e);
	free(wait);
}

CUresult fc_ipc_event_marker(struct fc_event *e, struct fc_ctx *ctx, struct fc_work **ret_work)
{
	struct wait_work *w;

	w = (struct wait_work *)fc_work_new(sizeof(*w), FC_WORK_MARKER, "shared event", ctx, 0);
	*ret_work = &w->work;
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->e = fc_event_ref(e);
	w->value = atomic_load(&e->ipc->page->recorded);
	w->work.may_start = may_start;
	w->work.release = release_wait;
	w->work.one_shot = true;
	return CUDA_SUCCESS;
}

/* ---- entries ---- */

CUresult fc_cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	struct event_handle h = { .magic = EVENT_MAGIC, .pid = getpid() };
	struct fc_event *e;
	CUresult r = fc_event_get(event, &e);
	int fd;

	if (r)
		return r;
	if (!pHandle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(e->flags & CU_EVENT_INTERPROCESS))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!e->ipc) {
		fd = memfd_create("fakecuda event", MFD_CLOEXEC);
		r = fd < 0 || ftruncate(fd, 4096) ? CUDA_ERROR_OPERATING_SYSTEM : attach(e, fd);
		if (r) {
			if (fd >= 0)
				close(fd);
			return r;
		}
		if (e->op)
			fc_ipc_event_resolve(e->op);
	}
	if (fc_fd_inode(e->ipc->fd) != e->ipc->inode)
		return CUDA_ERROR_OPERATING_SYSTEM;
	h.inode = e->ipc->inode;
	h.fd = e->ipc->fd;
	memset(pHandle, 0, sizeof(*pHandle));
	memcpy(pHandle->reserved, &h, sizeof(h));
	return CUDA_SUCCESS;
}

CUresult fc_cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	struct event_handle h;
	struct fc_event *e;
	struct fc_ctx *ctx;
	char path[64];
	CUresult r = fc_ctx_current(&ctx);
	int fd;

	if (r)
		return r;
	memcpy(&h, handle.reserved, sizeof(h));
	if (!phEvent || h.magic != EVENT_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (h.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h.pid, (int)h.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fc_fd_inode(fd) != h.inode) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_MAP_FAILED;
	}
	r = fc_event_make(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, &e);
	if (!r && (r = attach(e, fd)))
		fc_cuEventDestroy_v2(e->handle);
	if (r)
		close(fd);
	else
		*phEvent = e->handle;
	return r;
}
