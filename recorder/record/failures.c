/*
 * failures.c - record failed allocations, events that change no table, and the driver's reports about devices.
 *
 * Thread and signal context: see tables.h. These events are written under their domain's lock as all others
 * are, so that a reader that holds all domain locks sees whole chunks.
 */
#include "recorder/record/tables.h"

#include <string.h>

#include "recorder/journal/identity.h"

/* Store a failure in the ring. The number of the record is 0 while the record changes. */
static void store_failure(struct gm_header *header, struct gm_failure *failure)
{
	struct gm_region *region = &header->regions[GM_REGION_FAILURES];
	uint64_t records = gm_get(&region->populated) / sizeof(struct gm_failure);
	struct gm_failure *ring = (void *)(gm_rec.base + region->offset), *record;
	uint64_t number = atomic_fetch_add_explicit(&gm_rec.last_failure, 1,
						    memory_order_relaxed) + 1;

	gm_set(&failure->number, number);
	if (!records)
		return;
	record = &ring[(number - 1) % records];
	/* An exchange, because after a plain store the words below could become visible before the 0. */
	atomic_exchange_explicit(&record->number, 0, memory_order_acq_rel);
	memcpy((char *)record + sizeof(record->number),
	       (const char *)failure + sizeof(record->number),
	       sizeof(*record) - sizeof(record->number));
	gm_set_release(&record->number, number);
}

static uint64_t live_of(const struct gm_domain *domain)
{
	uint64_t live = 0;

	if (domain->pool.source)
		return (uint64_t)gm_pool_live_bytes(&domain->pool.classes[0]) +
		       (uint64_t)gm_pool_live_bytes(&domain->pool.classes[1]);
	for (unsigned int kind = 0; kind < GM_KIND_COUNT; kind++)
		live += domain->live_bytes[kind];
	return live;
}

uint64_t gm_record_failure(struct gm_failure *failure)
{
	struct gm_segment like = { .module = failure->module, .kind = failure->kind };
	struct gm_header *header = gm_header_get();
	struct gm_change change;
	struct gm_txn txn;

	gm_caches_flush(failure->domain);
	if (failure->kind >= GM_KIND_COUNT || gm_change_enter(&change, failure->domain, 0) < 0)
		return 0;
	failure->tsc = failure->tsc ? failure->tsc : gm_stamp();
	failure->tid = gm_writer_tid(&change.writer);
	failure->live_bytes = live_of(change.domain);
	store_failure(header, failure);
	gm_change_begin(&change, &txn);
	gm_txn_save(&txn, &change.domain->stats.num_ooms);
	gm_txn_arm(&txn);
	change.domain->stats.num_ooms++;
	gm_change_event(&change, &like, GM_ACTION_OOM, failure->tsc, failure->free_bytes,
			failure->requested_bytes, failure->stream, failure->stack);
	gm_txn_end(&txn);
	gm_change_leave(&change);
	return gm_get(&failure->number);
}

void gm_record_note(enum gm_action action, uint8_t domain, uint64_t size, uint32_t string)
{
	struct gm_segment nothing = { 0 };
	struct gm_change change;

	if (gm_change_enter(&change, domain, 0) < 0)
		return;
	gm_change_event(&change, &nothing, action, gm_stamp(), 0, size, 0, string);
	gm_change_leave(&change);
}

void gm_record_device(uint8_t domain, int ordinal, const char *name, const uint8_t uuid[16],
		      uint64_t total_bytes)
{
	struct gm_change change;

	if (gm_change_enter(&change, domain, 0) < 0)
		return;
	change.domain->ordinal = ordinal;
	gm_text_copy(change.domain->name, sizeof(change.domain->name), name);
	if (uuid)
		memcpy(change.domain->uuid, uuid, sizeof(change.domain->uuid));
	__atomic_store_n(&change.domain->total_bytes, total_bytes, __ATOMIC_RELAXED);
	gm_order();
	change.domain->present = 1;
	gm_change_leave(&change);
}

int gm_record_held_bytes(uint8_t domain, uint64_t *ret_bytes)
{
	struct gm_change change;
	int r = gm_change_enter(&change, domain, 0);

	if (r)
		return r;
	*ret_bytes = (uint64_t)change.domain->stats.stat[GM_STAT_RESERVED_BYTES][GM_POOL_ALL].current +
		     change.domain->live_bytes[GM_KIND_IPC];	/* another process's bytes: in no statistics */
	gm_change_leave(&change);
	return 0;
}

void gm_record_free_bytes(uint8_t domain, uint64_t free_bytes, uint64_t total_bytes,
			  uint64_t held_bytes)
{
	struct gm_domain *of = gm_header_get() && domain < GM_DOMAIN_POOLS ? &gm_rec.domains[domain] : NULL;

	if (!of)
		return;
	if (total_bytes)
		__atomic_store_n(&of->total_bytes, total_bytes, __ATOMIC_RELAXED);
	gm_set(&of->free_bytes, free_bytes);
	gm_set(&of->unattributed_bytes, (int64_t)(total_bytes - free_bytes - held_bytes));
	gm_set_release(&of->free_stamp, gm_stamp());
}

void gm_record_driver_version(int version)
{
	struct gm_header *header = gm_header_get();

	if (header)
		__atomic_store_n(&header->driver_version, version, __ATOMIC_RELAXED);
}
