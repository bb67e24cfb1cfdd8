/*
 * waiting.c - kernels that wait for a word in memory, and launches that overlap their predecessor.
 *
 * A kernel whose name was registered ends only when the word that its first parameter points to
 * has the value its second one names: it stands for every kernel that spins on a flag, set by the
 * host, by a copy, by another kernel or by a stream memory operation.
 *
 * A kernel launched with programmatic serialisation may start as soon as the kernel before it in
 * its stream has started, event records, stream-ordered allocations and frees and waits for other
 * streams' events between the two notwithstanding (seen on an H200; the waits themselves hold). It
 * ends after all of them. Whether a launch *may* overlap does not depend on what has completed by
 * the time it is submitted: the race detector must see the same order in every run.
 *
 * All under fc.lock; registration takes it.
 */
#include "test/fakecuda/stream/waiting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 32

static struct {
	char name[64];
	enum fc_until until;
} names[MAX_NAMES] = { { "wait_flag", FC_UNTIL_EQ } };
static size_t n_names = 1;

/* ---- words ---- */

void *fc_word_find(uint64_t ptr, unsigned int width)
{
	size_t run;
	uint8_t *p;

	if (ptr % width || !fc_alloc_find(ptr))
		return NULL;
	p = fc_span(ptr, width, &run);
	return p && run >= width ? p : NULL;
}

/* The program's threads and the device write such words while this looks. */
uint64_t fc_word_load(const void *p, unsigned int width)
{
	return width == 8 ? __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE) :
			    __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE);
}

bool fc_word_meets(const struct fc_word *word, uint64_t is)
{
	uint64_t mask = word->width == 8 ? UINT64_MAX : UINT32_MAX;

	switch (word->until) {
	case FC_UNTIL_EQ:
		return is == (word->value & mask);
	case FC_UNTIL_NE:
		return is != (word->value & mask);
	case FC_UNTIL_GEQ:
		return word->width == 8 ? (int64_t)(is - word->value) >= 0 :
					  (int32_t)(is - word->value) >= 0;
	case FC_UNTIL_AND:
		return is & word->value & mask;
	case FC_UNTIL_NOR:
		return ~(is | word->value) & mask;
	}
	return true;
}

void fc_word_describe(const struct fc_word *word, char *buf, size_t size)
{
	static const char *const until[] = { "==", "!=", ">=", "&", "nor" };
	const void *p = fc_word_find(word->ptr, word->width);

	if (p)
		snprintf(buf, size, "word at %#llx is %#llx, wanted %s %#llx",
			 (unsigned long long)word->ptr,
			 (unsigned long long)fc_word_load(p, word->width), until[word->until],
			 (unsigned long long)word->value);
	else
		snprintf(buf, size, "word at %#llx is gone", (unsigned long long)word->ptr);
}

/* ---- kernels ---- */

FC_EXPORT void fakecuda_wait_kernel(const char *name, enum fakecuda_wait until)
{
	fc_enter_control();
	if (n_names < MAX_NAMES && strlen(name) < sizeof(names[0].name)) {
		strcpy(names[n_names].name, name);
		names[n_names++].until = (enum fc_until)until;
	} else {
		fc_log("fakecuda_wait_kernel: no room for %s", name);
	}
	fc_leave_control();
}

static bool kernel_may_end(struct fc_work *w, struct fc_op *op)
{
	const void *p = fc_word_find(w->wait->ptr, w->wait->width);

	if (!p && !op->ctx->sticky) {
		op->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
		fc_log("%s waits for a word that is not there: error 700", w->name);
	}
	if (!op->ctx->sticky && !fc_word_meets(w->wait, fc_word_load(p, w->wait->width)))
		return false;
	fc_race_wait_over(op);
	return true;
}

void fc_waiting_kernel(struct fc_work *w, const struct fc_kernel *k, void *const *args)
{
	struct fc_word *word;
	size_t i = n_names;

	while (i && !strstr(k->name, names[i - 1].name))
		i--;
	if (!i || k->n_params < 2 || k->sizes[0] != 8 || (k->sizes[1] != 4 && k->sizes[1] != 8))
		return;
	word = calloc(1, sizeof(*word));
	if (!word)
		return;
	word->width = (unsigned int)k->sizes[1];
	word->until = names[i - 1].until;
	memcpy(&word->ptr, args[0], 8);
	memcpy(&word->value, args[1], word->width);
	w->wait = word;
	w->may_end = kernel_may_end;
}

/* ---- launches that overlap ---- */

/* What the next launch in a stream may overlap: the kernel at the end of it, with nothing behind
 * it but what does not keep kernels apart. */
struct overlap {
	struct fc_op *kernel;		/* counted; NULL: none */
	struct fc_op **waits;		/* counted: what other streams' work must end before */
	size_t n_waits;
};

static void forget(struct overlap *o)
{
	struct fc_op *kernel = o->kernel;

	o->kernel = NULL;
	while (o->n_waits)
		fc_op_put(o->waits[--o->n_waits]);
	free(o->waits);
	o->waits = NULL;
	fc_op_put(kernel);
}

void fc_waiting_stream_ended(struct fc_stream *s)
{
	struct overlap *o = s->overlap;

	if (!o)
		return;
	s->overlap = NULL;
	forget(o);
	free(o);
}

static bool add_wait(struct overlap *o, struct fc_op *op)
{
	struct fc_op **grown = realloc(o->waits, (o->n_waits + 1) * sizeof(*grown));

	if (!grown)
		return false;
	o->waits = grown;
	grown[o->n_waits++] = fc_op_get(op);
	return true;
}

void fc_waiting_committed(struct fc_op *op)
{
	struct fc_stream *s = op->stream;
	struct overlap *o;

	if (!s || s->destroyed)
		return;
	o = s->overlap;
	if (!o && op->work->kind != FC_WORK_KERNEL)
		return;
	if (!o)
		o = s->overlap = calloc(1, sizeof(*o));
	if (!o)
		return;
	switch (op->work->kind) {
	case FC_WORK_KERNEL:
		forget(o);
		o->kernel = fc_op_get(op);
		break;
	case FC_WORK_MARKER:
	case FC_WORK_ALLOC:
	case FC_WORK_FREE:
		for (size_t i = 0; o->kernel && i < op->n_deps; i++)
			if (op->deps[i].on->stream != s && !add_wait(o, op->deps[i].on))
				forget(o);
		break;
	default:
		forget(o);
	}
}

bool fc_waiting_order(struct fc_op *op, struct fc_stream *s)
{
	struct overlap *o = s->overlap;

	if (!op->work->overlaps || !o || !o->kernel)
		return false;
	/* Out of memory: what has been added stands, and the caller adds the full order to it. */
	if (fc_op_after(op, o->kernel, FC_AFTER_START) ||
	    fc_op_after(op, s->tail, FC_END_AFTER_END))
		return false;
	for (size_t i = 0; i < o->n_waits; i++)
		if (fc_op_after(op, o->waits[i], FC_AFTER_END))
			return false;
	return true;
}

/* ---- the rest ---- */

void fc_waiting_reset(void)
{
	n_names = 1;
	fc_hang_reset();
}
