/*
 * dump.c - the driver's state as text, and the check of its own structures. Lock: fc.lock.
 */
#include <stdio.h>

#include "test/fakecuda/memory/memory.h"
#include "test/fakecuda/memory/pool.h"

static const char *const alloc_names[] = {
	[FC_MEM_DEVICE] = "device", [FC_MEM_MANAGED] = "managed", [FC_MEM_HOST] = "host",
	[FC_MEM_REGISTERED] = "registered", [FC_MEM_POOL] = "pool", [FC_MEM_GRAPH] = "graph",
	[FC_MEM_VMM] = "vmm", [FC_MEM_IPC] = "ipc", [FC_MEM_EXTERNAL] = "external",
	[FC_MEM_GLOBAL] = "global", [FC_MEM_ARRAY] = "array",
};

static const char *const kind_names[FAKECUDA_KINDS] = {
	"device", "managed", "array", "host", "vmm", "pool", "ipc", "graph", "external",
};

static const char *const state_names[] = {
	"new", "waiting", "blocked", "running", "executing", "done",
};

static void dump_device(int fd, const struct fc_device *dev)
{
	dprintf(fd, "device %d: capacity %zu, charged %zu, other %zu\n", dev->ordinal,
		dev->capacity, dev->charged, dev->other_bytes);
	for (int kind = 0; kind < FAKECUDA_KINDS; kind++)
		if (dev->live_count[kind])
			dprintf(fd, "  %s: %llu bytes in %llu\n", kind_names[kind],
				(unsigned long long)dev->live_bytes[kind],
				(unsigned long long)dev->live_count[kind]);
}

static void dump_allocations(int fd)
{
	for (struct fc_alloc *a = fc_alloc_next(0); a; a = fc_alloc_next(a->base + 1))
		dprintf(fd, "allocation %#llx + %zu: %s, device %d, id %llu%s\n",
			(unsigned long long)a->base, a->size, alloc_names[a->kind],
			a->dev ? a->dev->ordinal : -1, (unsigned long long)a->id,
			a->freed ? ", being freed" : "");
}

static void dump_operations(int fd)
{
	for (struct fc_op *op = fc.pending; op; op = op->next) {
		dprintf(fd, "pending %llu: %s, %s, stream %llu, submitted %llu",
			(unsigned long long)op->seq, op->work->name, state_names[op->state],
			(unsigned long long)(op->stream ? op->stream->id : 0),
			(unsigned long long)op->submit_ns);
		if (op->state == FC_OP_RUNNING)
			dprintf(fd, ", ends %llu", (unsigned long long)op->end_ns);
		for (size_t i = 0; i < op->n_deps; i++)
			if (!fc_op_done(op->deps[i].on))
				dprintf(fd, ", after %llu",
					(unsigned long long)op->deps[i].on->seq);
		dprintf(fd, "\n");
	}
	for (const struct fc_wait *w = fc.waits; w; w = w->next)
		dprintf(fd, "thread in %s waits for %s %llu\n", w->why,
			w->op ? "operation" : "all up to",
			(unsigned long long)(w->op ? w->op->seq : w->seq));
}

FC_EXPORT void fakecuda_dump(int fd)
{
	fc_enter_control();
	dprintf(fd, "now %llu ns, %zu pending\n", (unsigned long long)fc.now_ns, fc.n_pending);
	for (int i = 0; i < fc.n_devices; i++)
		dump_device(fd, &fc.devices[i]);
	dump_allocations(fd);
	dump_operations(fd);
	fc_capture_dump(fd);
	fc_graph_dump(fd);
	fc_race_dump(fd);
	fc_waiting_dump(fd);
	fc_leave_control();
}

/* Every pending operation in order, and none of it done. */
static int check_operations(void)
{
	uint64_t seq = 0;
	size_t n = 0;
	int bad = 0;

	for (struct fc_op *op = fc.pending; op; op = op->next, n++) {
		bad += op->seq <= seq || op->state == FC_OP_DONE || !op->refs;
		bad += op->next && op->next->prevp != &op->next;
		seq = op->seq;
	}
	return bad + (n != fc.n_pending);
}

FC_EXPORT int fakecuda_check(void)
{
	int bad;

	fc_enter_control();
	bad = check_operations() + fc_tree_check() + fc_arena_check() + fc_pool_check();
	fc_leave_control();
	return bad;
}
