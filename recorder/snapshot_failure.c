/*
 * snapshot_failure.c - the sections "failure" and "failures": what could not be had, what was free
 * then, and who holds the rest.
 *
 * Thread context: as snapshot.h.
 */
#include "recorder/snapshot_internal.h"

/* The largest block of @domain that lies idle in a cache of ours, 0 when there is none. */
static uint64_t largest_idle(const struct gm_snap *snap, unsigned int domain)
{
	uint64_t largest = 0;

	for (uint32_t i = 1; i < gm_image_items(snap->image, GM_REGION_BLOCKS); i++) {
		const struct gm_block *block = gm_image_block(snap->image, i);

		if (block && block->state == GM_BLOCK_INACTIVE && block->domain == domain &&
		    block->size > largest)
			largest = block->size;
	}
	return largest;
}

/* The members of one failure, without the braces. */
static void put_failure(struct gm_snap *snap, const struct gm_failure *failure)
{
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_u64(w, "number", failure->number);
	gm_snap_key_time(snap, "time_us", failure->tsc);
	gm_snap_key_chars(snap, "entry", failure->entry, sizeof(failure->entry));
	gm_jsonw_key_i64(w, "result", failure->result);
	gm_jsonw_key_text(w, "result_name", gm_result_name(failure->result));
	gm_snap_key_device(snap, failure->domain);
	gm_jsonw_key_text(w, "kind", gm_kind_name(failure->kind));
	gm_jsonw_key_u64(w, "requested_bytes", failure->requested_bytes);
	gm_jsonw_key_u64(w, "free_bytes", failure->free_bytes);
	gm_jsonw_key_u64(w, "total_bytes", failure->total_bytes);
	gm_jsonw_key_u64(w, "live_bytes", failure->live_bytes);
	gm_jsonw_key_u64(w, "stream", failure->stream);
	gm_jsonw_key_u64(w, "thread", failure->tid);
	gm_jsonw_key_u64(w, "module", gm_snap_module(snap, failure->module));
	gm_jsonw_key_u64(w, "stack", gm_snap_stack(snap, failure->stack));
}

static void put_failures(struct gm_snap *snap)
{
	struct gm_pair *order;
	size_t count = 0;

	for (size_t i = 0; i < gm_image_items(snap->image, GM_REGION_FAILURES); i++) {
		const struct gm_failure *failure = gm_image_failure(snap->image, i);

		if (failure->number)
			snap->rows[count++] = (struct gm_pair){ failure->number, i };
	}
	order = gm_pairs_sort(snap->rows, snap->rows_scratch, count);
	gm_jsonw_key(snap->w, "failures");
	gm_jsonw_array(snap->w);
	for (size_t i = 0; i < count; i++) {
		gm_jsonw_object(snap->w);
		put_failure(snap, gm_image_failure(snap->image, order[i].value));
		gm_jsonw_end(snap->w);
	}
	gm_jsonw_end(snap->w);
}

static const struct gm_failure *wanted(const struct gm_snap *snap)
{
	for (size_t i = 0; snap->request->failure &&
	     i < gm_image_items(snap->image, GM_REGION_FAILURES); i++) {
		const struct gm_failure *failure = gm_image_failure(snap->image, i);

		if (failure->number == snap->request->failure)
			return failure;
	}
	return NULL;
}

static void put_crash(struct gm_snap *snap)
{
	const struct gm_header *header = snap->image->header;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	gm_jsonw_key_text(w, "type", "crash");
	gm_jsonw_key_i64(w, "signal", header->crash_signal);
	gm_jsonw_key_i64(w, "code", header->crash_code);
	gm_jsonw_key_u64(w, "address", header->crash_address);
	gm_snap_key_time(snap, "time_us", header->crash_tsc);
	gm_jsonw_key_u64(w, "thread", header->crash_tid);
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
	} else if (snap->image->header->crash_signal) {
		put_crash(snap);
	} else {
		gm_jsonw_null(w);
	}
	put_failures(snap);
}
