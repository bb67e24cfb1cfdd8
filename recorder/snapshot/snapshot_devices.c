/*
 * snapshot_devices.c - the section "devices", and the same for the host: the driver's description of a
 * device, PyTorch's statistics by PyTorch's names, bytes by module and by kind, and the bytes that this
 * process does not account for. Contexts as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

static void put_stat(void *writer, const char *name, int64_t value)
{
	gm_jsonw_key_i64(writer, name, value);
}

/* Write PyTorch's memory_stats(), flattened and sorted by key as in PyTorch. */
void gm_snap_stats(struct gm_snap *snap, const struct gm_stats *stats, gm_stats_lister *lister)
{
	gm_jsonw_key_object(snap->w, "memory_stats");
	lister(stats, put_stat, snap->w);
	gm_jsonw_end(snap->w);
}

static void put_row(struct gm_snap *snap, const struct gm_usage *row, bool by_module)
{
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	if (by_module) {
		const struct gm_module *module = gm_copy_module(snap->copy, row->module);

		gm_jsonw_key_u64(w, "module", gm_snap_module(snap, row->module));
		gm_snap_key_string(snap, "path", module ? module->path : GM_NONE);
	} else {
		gm_jsonw_key_text(w, "kind", gm_kind_name(row->kind));
	}
	gm_jsonw_key_i64(w, "allocated_bytes", row->current_bytes);
	if (row->domain >= GM_DOMAIN_POOLS) {	/* summed over live blocks: the row has no past */
		gm_jsonw_end(w);
		return;
	}
	gm_jsonw_key_i64(w, "peak_bytes", row->peak_bytes);
	gm_jsonw_key_i64(w, "total_allocated_bytes", row->allocated_bytes);
	gm_jsonw_key_i64(w, "total_freed_bytes", row->freed_bytes);
	gm_jsonw_key_i64(w, "allocations", row->allocations);
	gm_jsonw_key_i64(w, "frees", row->frees);
	gm_jsonw_end(w);
}

void gm_snap_usage(struct gm_snap *snap, const char *key, unsigned int domain, bool by_module)
{
	struct gm_pair *order;
	size_t count = 0;

	for (size_t i = 1; i < gm_copy_items(snap->copy, GM_REGION_USAGE); i++) {
		const struct gm_usage *row = gm_copy_usage(snap->copy, i);
		bool all_modules = row->module == GM_USAGE_ALL_MODULES;
		bool wanted = by_module ? row->kind == GM_USAGE_ALL_KINDS && !all_modules :
					  all_modules && row->kind < GM_KIND_COUNT;

		if (row->used == 1 && row->domain == domain && wanted)	/* largest first */
			snap->rows[count++] = (struct gm_pair){
				UINT64_MAX / 2 - (uint64_t)row->current_bytes, i
			};
	}
	order = gm_pairs_sort(snap->rows, snap->rows_scratch, count);
	gm_jsonw_key_array(snap->w, key);
	for (size_t i = 0; i < count; i++)
		put_row(snap, gm_copy_usage(snap->copy, order[i].value), by_module);
	gm_jsonw_end(snap->w);
}

static void put_site(struct gm_snap *snap, const struct gm_site *site)
{
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	gm_jsonw_key_u64(w, "stack", gm_snap_stack(snap, (uint32_t)site->key));
	gm_jsonw_key_u64(w, "module", gm_snap_module(snap, (uint32_t)(site->key >> 32) & 0xffff));
	gm_jsonw_key_text(w, "kind", gm_kind_name(gm_site_kind(site)));
	gm_jsonw_key_i64(w, "bytes", site->live);
	if (site->held)
		gm_jsonw_key_bool(w, "of_pool", true);
	gm_jsonw_end(w);
}

void gm_snap_peak(struct gm_snap *snap, unsigned int d)
{
	const struct gm_domain *domain = gm_copy_domain(snap->copy, d);
	struct gm_pair *order;
	size_t count = 0;

	if (snap->request->what != GM_EMIT_ALL)
		return;
	for (size_t i = 1; i < gm_copy_items(snap->copy, GM_REGION_SITES); i++) {
		const struct gm_site *site = gm_copy_site(snap->copy, i);

		if (site && gm_site_domain(site) == d && site->live > 0)	/* largest first */
			snap->rows[count++] = (struct gm_pair){ UINT64_MAX / 2 - (uint64_t)site->live, i };
	}
	order = gm_pairs_sort(snap->rows, snap->rows_scratch, count);
	gm_jsonw_key_object(snap->w, "at_peak");
	gm_snap_key_time(snap, "time_us", domain ? domain->peak_tsc : 0);
	gm_jsonw_key_array(snap->w, "sites");
	for (size_t i = 0; i < count; i++)
		put_site(snap, gm_copy_site(snap->copy, order[i].value));
	gm_jsonw_end(snap->w);
	gm_jsonw_end(snap->w);
}

static void put_device(struct gm_snap *snap, unsigned int d)
{
	static const char hex[] = "0123456789abcdef";
	const struct gm_domain *domain = gm_copy_domain(snap->copy, d);
	struct gm_jsonw *w = snap->w;
	char uuid[36];

	gm_jsonw_object(w);
	gm_snap_key_device(snap, d);
	if (domain) {
		for (unsigned int i = 0, at = 0; i < 16; i++) {
			if (i == 4 || i == 6 || i == 8 || i == 10)
				uuid[at++] = '-';
			uuid[at++] = hex[domain->uuid[i] >> 4];
			uuid[at++] = hex[domain->uuid[i] & 15];
		}
		gm_jsonw_key_bool(w, "present", domain->present != 0);
		gm_snap_key_chars(snap, "name", domain->name, sizeof(domain->name));
		gm_jsonw_key_bytes(w, "uuid", uuid, sizeof(uuid));
		gm_jsonw_key_u64(w, "total_bytes", domain->total_bytes);
		gm_jsonw_key_u64_if(w, "free_bytes", domain->free_stamp != 0, domain->free_bytes);
		gm_snap_key_time(snap, "sampled_us", domain->free_stamp);
		gm_snap_stats(snap, &domain->stats, gm_stats_list);
		gm_snap_usage(snap, "by_module", d, true);
		gm_snap_usage(snap, "by_kind", d, false);
		gm_snap_peak(snap, d);
		gm_jsonw_key_i64_if(w, "unattributed_bytes", domain->free_stamp != 0,
				    domain->unattributed_bytes);
	}
	gm_jsonw_end(w);
}

void gm_snap_devices(struct gm_snap *snap)
{
	const struct gm_domain *host = gm_copy_domain(snap->copy, GM_DOMAIN_HOST);
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_array(w, "devices");
	for (unsigned int d = 0; d < snap->devices; d++)
		put_device(snap, d);
	gm_jsonw_end(w);
	gm_jsonw_key_object(w, "host");
	if (host) {
		gm_snap_stats(snap, &host->stats, gm_stats_list);
		gm_snap_usage(snap, "by_module", GM_DOMAIN_HOST, true);
		gm_snap_usage(snap, "by_kind", GM_DOMAIN_HOST, false);
		gm_snap_peak(snap, GM_DOMAIN_HOST);
	}
	gm_jsonw_end(w);
}
