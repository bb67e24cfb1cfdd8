/*
 * host.c - host functions: run in stream order, on a thread of the driver's own, without its lock.
 *
 * One worker thread, started at the first host function, all signals blocked. Inside a host
 * function every CUDA call returns 800 (entry.c sees fc_tls.in_host_function). Whoever moves the
 * clock past a host function waits for it to return, so that the course of things does not depend
 * on the scheduler; but only for a bounded time, since the function may need something the waiting
 * thread does after its call.
 *
 * Lock: fc.lock, given up around the program's function and in fc_host_settle.
 */
#include "test/fakecuda/stream/clock.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define SETTLE_MS 50
#define HOST_NS 1000		/* virtual duration of a host function */

static struct fc_op *queue, **queue_tail = &queue;	/* by run_next */
static pthread_cond_t work_came = PTHREAD_COND_INITIALIZER;
static bool have_worker;
static unsigned int slow;	/* executing ones that somebody gave up waiting for */
static CUresult sticky;		/* worker thread: of the context, when its function was begun */

static void *worker(void *unused)
{
	(void)unused;
	fc_lock();
	for (;;) {
		struct fc_op *op = queue;

		if (!op) {
			pthread_cond_wait(&work_came, &fc.lock);
			continue;
		}
		queue = op->run_next;
		if (!queue)
			queue_tail = &queue;
		op->run_next = NULL;
		sticky = op->ctx->sticky;
		fc_tls.in_host_function = true;
		fc_tls.host_op = op;
		fc_tls.host_op = op;
		fc_unlock();
		op->work->host(op->work);
		fc_lock();
		fc_tls.in_host_function = false;
		fc_tls.host_op = NULL;
		fc_tls.host_op = NULL;
		fc.executing--;
		if (slow > fc.executing)
			slow = fc.executing;
		fc_op_complete(op);
		fc_clock_poll();
	}
	return NULL;
}

static int start_worker(void)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, worker, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -err;
	pthread_detach(thread);
	have_worker = true;
	return 0;
}

int fc_host_start(struct fc_op *op)
{
	if (!have_worker && start_worker())
		return -EAGAIN;
	op->run_next = NULL;
	*queue_tail = op;
	queue_tail = &op->run_next;
	pthread_cond_signal(&work_came);
	return 0;
}

void fc_host_settle(void)
{
	struct timespec until;

	if (fc.executing <= slow || fc_tls.in_host_function)
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += SETTLE_MS * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (fc.executing > slow)
		if (pthread_cond_timedwait(&fc.changed, &fc.lock, &until) == ETIMEDOUT) {
			slow = fc.executing;
			break;
		}
}

void fc_host_reset(void)
{
	while (fc.executing)
		pthread_cond_wait(&fc.changed, &fc.lock);
	slow = 0;
}

/* ---- the two kinds of work ---- */

struct host_work {
	struct fc_work work;
	CUhostFn fn;
	CUstreamCallback callback;
	CUstream stream;	/* as the program named it */
	void *arg;
};

static void call(struct fc_work *w)
{
	struct host_work *h = (struct host_work *)w;

	if (h->callback)
		h->callback(h->stream, sticky, h->arg);
	else if (!sticky)	/* never called in a poisoned context */
		h->fn(h->arg);
}

static CUresult make(struct fc_ctx *ctx, CUhostFn fn, CUstreamCallback callback, CUstream stream,
		     void *arg, struct fc_work **ret_work)
{
	struct host_work *h;

	if (!fn && !callback)
		return CUDA_ERROR_INVALID_VALUE;
	h = (struct host_work *)fc_work_new(sizeof(*h), FC_WORK_HOST,
					    fn ? "host function" : "stream callback", ctx, HOST_NS);
	if (!h)
		return CUDA_ERROR_OUT_OF_MEMORY;
	h->work.host = call;
	h->fn = fn;
	h->callback = callback;
	h->stream = stream;
	h->arg = arg;
	*ret_work = &h->work;
	return CUDA_SUCCESS;
}

CUresult fc_work_host(struct fc_ctx *ctx, CUhostFn fn, void *arg, struct fc_work **ret_work)
{
	return make(ctx, fn, NULL, NULL, arg, ret_work);
}

bool fc_work_host_params(const struct fc_work *w, CUDA_HOST_NODE_PARAMS_v1 *ret_p)
{
	const struct host_work *h = (const struct host_work *)w;

	if (w->kind != FC_WORK_HOST || w->host != call)
		return false;
	*ret_p = (CUDA_HOST_NODE_PARAMS_v1){ .fn = h->fn, .userData = h->arg };
	return true;
}

static CUresult submit(CUstream hStream, CUhostFn fn, CUstreamCallback callback, void *arg)
{
	struct fc_stream *s;
	struct fc_work *w;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	r = make(s->ctx, fn, callback, hStream, arg, &w);
	if (r)
		return r;
	r = fc_submit(s, w, NULL);
	fc_work_put(w);
	return r;
}

CUresult fc_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	return submit(hStream, fn, NULL, userData);
}

CUresult fc_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
				unsigned int flags)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (flags || !callback)
		return CUDA_ERROR_INVALID_VALUE;
	if (fc_capture_on(s))
		return fc_capture_check(FC_UNSAFE_STREAM, s->ctx, s);
	return submit(hStream, NULL, callback, userData);
}
