/*
 * stacks_intern.c - a stack never seen (see stacks_intern.h).
 *
 * Python's frames come in groups: those that one call of the interpreter's loop runs. A group takes
 * the place of that call's native frame, which says nothing that they do not. Which one that is,
 * the group's anchor tells: an address in the native frame. Where there is none (3.8, 3.9, a walk
 * that was cut), it is the next frame whose address lies in the loop's function. Owns no state.
 */
#include "recorder/stacks/stacks_intern.h"

#include "recorder/modules/modules.h"
#include "recorder/journal/recorder.h"

#define ITEMS (2 * GM_STACK_DEPTH_MAX + 2)

struct merge {
	const struct gm_stack_parts *parts;
	const uintptr_t *pcs, *ends;	/* native, our own left out; ends[-1] if @own > 0 */
	int next;			/* native frame */
	int pass;			/* calls of the loop that have no Python frames */
	const uintptr_t *items;
	int item, items_count;
	uint32_t ids[GM_STACK_DEPTH_MAX];
	int count;
	bool full;			/* there was more than room for */
};

static void put(struct merge *m, uint32_t id)
{
	if (m->count < m->parts->limit)
		m->ids[m->count++] = id;
	else
		m->full = true;
}

static void put_native(struct merge *m, int until)
{
	for (; m->next < until && !m->full; m->next++) {
		struct gm_frame frame = { 0 };

		frame.module = gm_modules_lookup(m->pcs[m->next], &frame.offset);
		put(m, gm_intern_frame(&frame));
	}
}

static void put_python(struct merge *m, int until)
{
	for (; m->item < until && !m->full; m->item++) {
		uint32_t id;
		bool skip;

		if (m->items[m->item] & GM_PYTHON_ANCHOR)
			continue;
		id = gm_python_intern(m->parts->python, m->items[m->item], &skip);
		if (!skip)
			put(m, id);
	}
}

/* Behind the last item of the group that begins at m->item. */
static int group_end(const struct merge *m)
{
	int at = m->item;

	if (m->parts->python->layout->chain == GM_CHAIN_PLAIN)
		return at + 1;
	while (at < m->items_count && !(m->items[at] & GM_PYTHON_ANCHOR))
		at++;
	return at < m->items_count ? at + 1 : at;
}

static bool is_eval(const struct merge *m, int native)
{
	const struct gm_python *python = m->parts->python;

	return m->pcs[native] > python->eval && m->pcs[native] <= python->eval_end;
}

/* The native frame that runs the group which ends before @end; -1 when it is not there. */
static int place_of(struct merge *m, int end)
{
	uintptr_t anchor = m->items[end - 1];

	for (int i = m->next; i < m->parts->count; i++) {
		if (anchor & GM_PYTHON_ANCHOR) {
			anchor &= ~(uintptr_t)GM_PYTHON_ANCHOR;
			for (; i < m->parts->count; i++)
				if (anchor < m->ends[i] &&
				    (i + m->parts->own == 0 || anchor >= m->ends[i - 1]))
					return i;
			return -1;
		}
		if (is_eval(m, i) && m->pass-- <= 0)
			return i;
	}
	return -1;
}

/* 3.8, 3.9: the frames of a sub-interpreter may be missing; then the calls of the loop that the
 * stack begins with are its, if both ends of the stack are known. */
static int calls_without_frames(const struct merge *m, unsigned int flags, int frames)
{
	int calls = 0;

	if (m->parts->python->layout->chain != GM_CHAIN_PLAIN || flags)
		return 0;
	for (int i = 0; i < m->parts->count; i++)
		calls += is_eval(m, i);
	return calls > frames ? calls - frames : 0;
}

static void merge(struct merge *m)
{
	bool cut = m->parts->flags != 0;

	while (m->item < m->items_count && !m->full) {
		int end = group_end(m), place = place_of(m, end);

		if (place < 0 && cut)
			break;		/* its frame is beyond those we have */
		if (place >= 0) {
			put_native(m, place);
			m->next = place + 1;
		}
		put_python(m, end);
	}
	put_native(m, m->parts->count);
	put_python(m, m->items_count);
}

/* Not inlined: its arrays are not for the stacks of threads without Python. */
__attribute__((noinline))
static uint32_t intern_mixed(const struct gm_stack_parts *parts)
{
	uintptr_t pcs[GM_STACK_DEPTH_MAX + GM_STACK_OWN_MOST];
	uintptr_t ends[GM_STACK_DEPTH_MAX + GM_STACK_OWN_MOST];
	uintptr_t items[ITEMS];
	struct gm_python_walk walk = { .items = items, .max_items = ITEMS };
	struct merge m = { .parts = parts, .pcs = parts->pcs + parts->own };
	unsigned int flags = parts->flags;

	gm_python_walk(parts->python, parts->limit, &walk);
	m.items = items;
	m.items_count = walk.items_count;
	flags |= walk.flags;
	if (!parts->native) {
		put_python(&m, m.items_count);
		return gm_intern_stack(m.ids, (uint32_t)m.count, walk.flags != 0 || m.full);
	}
	if (gm_unwind_ends(parts->from, pcs, ends, parts->own + parts->count, NULL) !=
	    parts->own + parts->count)
		m.items_count = 0;	/* the same walk came out otherwise: not to be explained */
	m.ends = ends + parts->own;
	m.pass = calls_without_frames(&m, flags, walk.frames);
	merge(&m);
	return gm_intern_stack(m.ids, (uint32_t)m.count, flags != 0 || m.full);
}

static uint32_t intern_native(const struct gm_stack_parts *parts)
{
	struct merge m = { .parts = parts, .pcs = parts->pcs + parts->own };

	put_native(&m, parts->count);
	return gm_intern_stack(m.ids, (uint32_t)m.count, parts->flags != 0 || m.full);
}

uint32_t gm_stack_intern(const struct gm_stack_parts *parts)
{
	if (parts->python)
		return intern_mixed(parts);
	return parts->native ? intern_native(parts) : GM_NONE;
}
