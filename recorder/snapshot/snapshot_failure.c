/*
 * snapshot_failure.c - the sections "failure" and "failures": calls that did not get their memory, with the
 * memory that was free then and the holders of the rest; or the signal that ended the process, and its stack.
 * Contexts as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

/* Return the bytes of the largest idle block in our cache of @domain; 0: there is none. */
static uint64_t largest_idle(const struct gm_snap *snap, unsigned int domain)
{
	uint64_t largest = 0;

	if (domain >= GM_DOMAIN_POOLS)
		return gm_snap_pool_largest_idle(snap, domain);
	for (uint32_t i = 1; i < gm_copy_items(snap->copy, GM_REGION_BLOCKS); i++) {
		const struct gm_block *block = gm_copy_block(snap->copy, i);

		if (block && block->state == GM_BLOCK_INACTIVE && block->domain == domain &&
		    block->size > largest)
			largest = block->size;
	}
	return largest;
}

/* Write who refused the call: the driver, or our own limit before the driver was asked. */
static void put_limit(struct gm_snap *snap, const struct gm_failure *failure)
{
	bool ours = failure->limit > GM_LIMIT_NONE && failure->limit < GM_LIMIT_COUNT;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_text(w, "refused_by", gm_limit_name(ours ? failure->limit : GM_LIMIT_NONE));
	gm_jsonw_key_u64_if(w, "limit_bytes", ours, failure->limit_bytes);
	gm_jsonw_key_u64_if(w, "limit_used_bytes", ours, failure->limit_used_bytes);
}

/* Write the members of one failure, without the braces. */
static void put_failure(struct gm_snap *snap, const struct gm_failure *failure)
{
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_u64(w, "number", failure->number);
	gm_snap_key_time(snap, "time_us", failure->tsc);
	gm_snap_key_chars(snap, "entry", failure->entry, sizeof(failure->entry));
	gm_jsonw_key_i64(w, "result", failure->result);
	gm_jsonw_key_text(w, "result_name", gm_result_name(failure->result));
	gm_snap_key_device(snap, failure->domain);
	gm_jsonw_key_u64_if(w, "pool", failure->domain >= GM_DOMAIN_POOLS,
			    (uint64_t)failure->domain - GM_DOMAIN_POOLS + 1);
	gm_jsonw_key_text(w, "kind", gm_kind_name(failure->kind));
	gm_jsonw_key_u64(w, "requested_bytes", failure->requested_bytes);
	gm_jsonw_key_u64(w, "free_bytes", failure->free_bytes);
	gm_jsonw_key_u64(w, "total_bytes", failure->total_bytes);
	gm_jsonw_key_u64(w, "live_bytes", failure->live_bytes);
	gm_jsonw_key_u64(w, "reserved_bytes", failure->reserved_bytes);
	gm_jsonw_key_u64(w, "cached_bytes", failure->cached_bytes);
	gm_jsonw_key_u64(w, "limbo_bytes", failure->limbo_bytes);
	gm_jsonw_key_u64(w, "largest_free_bytes", failure->largest_free_bytes);
	put_limit(snap, failure);
	gm_jsonw_key_bool(w, "capturing", failure->capturing != 0);
	gm_jsonw_key_u64(w, "stream", gm_stream_shown(failure->stream));
	gm_jsonw_key_u64(w, "thread", failure->tid);
	gm_jsonw_key_u64(w, "module", gm_snap_module(snap, failure->module));
	gm_jsonw_key_u64(w, "stack", gm_snap_stack(snap, failure->stack));
}

static void put_failures(struct gm_snap *snap)
{
	struct gm_pair *order;
	size_t count = 0;

	for (size_t i = 0; i < gm_copy_items(snap->copy, GM_REGION_FAILURES); i++) {
		const struct gm_failure *failure = gm_copy_failure(snap->copy, i);

		if (failure->number)
			snap->rows[count++] = (struct gm_pair){ failure->number, i };
	}
	order = gm_pairs_sort(snap->rows, snap->rows_scratch, count);
	gm_jsonw_key_array(snap->w, "failures");
	for (size_t i = 0; i < count; i++) {
		gm_jsonw_object(snap->w);
		put_failure(snap, gm_copy_failure(snap->copy, order[i].value));
		gm_jsonw_end(snap->w);
	}
	gm_jsonw_end(snap->w);
}

static const struct gm_failure *wanted(const struct gm_snap *snap)
{
	for (size_t i = 0; snap->request->failure &&
	     i < gm_copy_items(snap->copy, GM_REGION_FAILURES); i++) {
		const struct gm_failure *failure = gm_copy_failure(snap->copy, i);

		if (failure->number == snap->request->failure)
			return failure;
	}
	return NULL;
}

/* Write the signal and its origin. */
static void put_signal(struct gm_snap *snap, const struct gm_header *header)
{
	struct gm_jsonw *w = snap->w;
	const char *name = gm_signal_name(header->crash_signal);
	bool sent = header->crash_code <= 0, fault = !sent && !gm_signal_is_wish(name);

	gm_jsonw_key_i64(w, "signal", header->crash_signal);
	gm_jsonw_key_text(w, "signal_name", name);
	gm_jsonw_key_i64(w, "code", header->crash_code);
	gm_jsonw_key_u64_if(w, "address", fault, header->crash_address);
	gm_jsonw_key_i64_if(w, "sender_pid", sent, header->crash_sender_pid);
	gm_jsonw_key_u64_if(w, "sender_uid", sent, header->crash_sender_uid);
	gm_snap_key_time(snap, "time_us", header->crash_tsc);
	gm_jsonw_key_u64(w, "thread", header->crash_tid);
}

static void put_registers(struct gm_snap *snap, const struct gm_header *header)
{
	struct gm_jsonw *w = snap->w;
	const char *name;

	gm_jsonw_key_object(w, "registers");
	for (unsigned int i = 0; (name = gm_register_name(header->crash_machine, i)); i++)
		gm_jsonw_key_u64(w, name, header->crash_registers[i]);
	gm_jsonw_end(w);
}

/* Return the module that held @pc; 0: not known, because its library never asked for memory and the helper
 * thread had no time to look it up. */
static uint32_t module_of(const struct gm_copy *copy, uint64_t pc)
{
	for (uint32_t i = 1; i < gm_copy_items(copy, GM_REGION_MODULES); i++) {
		const struct gm_module *module = gm_copy_module(copy, i);

		if (module && !module->unload_tsc && pc >= module->start && pc < module->end)
			return i;
	}
	return 0;
}

/* Write the stack as it was walked, without names, because there may have been no time to intern it. */
static void put_pcs(struct gm_snap *snap, const struct gm_header *header)
{
	size_t most = sizeof(header->crash_pcs) / sizeof(header->crash_pcs[0]);
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_array(w, "pcs");
	for (size_t i = 0; i < gm_min_u64(header->crash_frames, most); i++) {
		uint32_t id = module_of(snap->copy, header->crash_pcs[i]);
		const struct gm_module *module = gm_copy_module(snap->copy, id);

		gm_jsonw_object(w);
		gm_jsonw_key_u64(w, "pc", header->crash_pcs[i]);
		gm_jsonw_key_u64(w, "module", id);
		gm_jsonw_key_u64(w, "offset", header->crash_pcs[i] - (module ? module->base : 0));
		gm_jsonw_end(w);
	}
	gm_jsonw_end(w);
	gm_jsonw_key_bool(w, "truncated", header->crash_flags & 3);	/* enum gm_unwind_flag */
}

static void put_crash(struct gm_snap *snap)
{
	const struct gm_header *header = snap->copy->header;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	gm_jsonw_key_text(w, "type", "crash");
	put_signal(snap, header);
	gm_jsonw_key_u64(w, "stack", gm_snap_stack(snap, header->crash_stack));
	put_pcs(snap, header);
	put_registers(snap, header);
	gm_jsonw_key_array(w, "holders");
	for (unsigned int d = 0; d < snap->devices; d++) {
		gm_jsonw_object(w);
		gm_snap_key_device(snap, d);
		gm_snap_usage(snap, "by_module", d, true);
		gm_jsonw_end(w);
	}
	gm_jsonw_end(w);
	gm_jsonw_end(w);
}

void gm_snap_failures(struct gm_snap *snap)
{
	const struct gm_failure *failure = wanted(snap);
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key(w, "failure");
	if (failure) {
		gm_jsonw_object(w);
		gm_jsonw_key_text(w, "type", "oom");
		put_failure(snap, failure);
		gm_jsonw_key_u64(w, "largest_idle_block_bytes",
				 largest_idle(snap, failure->domain));
		gm_snap_usage(snap, "by_module", failure->domain, true);
		gm_snap_usage(snap, "by_kind", failure->domain, false);
		gm_jsonw_end(w);
	} else if (snap->copy->header->crash_signal) {
		put_crash(snap);
	} else {
		gm_jsonw_null(w);
	}
	put_failures(snap);
}
