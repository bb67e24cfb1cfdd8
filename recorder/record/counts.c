/*
 * counts.c - find the usage rows of a (domain, module, kind): see counts.h.
 *
 * They are found through a hash table whose entries are never removed: it is read without a lock, and
 * filled under the journal lock.
 */
#include "recorder/record/counts.h"

#include "recorder/journal/journal.h"

/* Return the entry of @key, or the free entry in which it belongs; NULL when neither is within 64 entries. */
static struct gm_usage_entry *find(uint32_t key)
{
	uint32_t at = key * UINT32_C(0x9e3779b1) >> 18;

	for (unsigned int i = 0; i < 64; i++, at++) {
		struct gm_usage_entry *entry = &gm_rec.lookup[at % GM_USAGE_LOOKUP];
		uint32_t there = gm_get_acquire(&entry->key);

		if (there == key || !there)
			return entry;
	}
	return NULL;
}

/* Find or make the row of (domain, module, kind). Returns its index; 0 when there is no room. */
static uint32_t row_locked(struct gm_header *header, uint8_t domain, uint16_t module, uint8_t kind)
{
	struct gm_region *region = &header->regions[GM_REGION_USAGE];
	struct gm_usage_entry *entry = find(gm_usage_key(domain, module, kind));
	uint64_t used = gm_get(&region->used);
	struct gm_usage *row;

	if (!entry)
		return 0;
	if (gm_get(&entry->key))
		return entry->rows.both;
	if (gm_region_reserve_locked(header, GM_REGION_USAGE, used + sizeof(*row)) < 0)
		return 0;
	entry->rows.both = (uint32_t)(used / sizeof(*row));
	row = &gm_rec.usage[entry->rows.both];
	row->module = module;
	row->domain = domain;
	row->kind = kind;
	row->used = 1;
	gm_set_release(&region->used, used + sizeof(*row));
	gm_set_release(&entry->key, gm_usage_key(domain, module, kind));
	return entry->rows.both;
}

/* Find the rows of (module, kind), (all modules, kind), (module, all kinds). The first result for a key stays for good,
 * even if rows are missing in it, because an allocation and its free must count in the same rows. Returns false when
 * the journal lock was not free in time. */
static bool rows_of(uint8_t domain, uint16_t module, uint8_t kind, bool nested,
		    struct gm_usage_rows *ret_rows)
{
	uint32_t key = gm_usage_key(domain, module, kind) | UINT32_C(1) << 30;
	struct gm_usage_entry *entry = find(key);
	struct gm_header *header = gm_header_get();

	*ret_rows = (struct gm_usage_rows){ 0 };
	if (!entry)
		return true;
	if (gm_likely(gm_get(&entry->key) == key)) {
		*ret_rows = entry->rows;
		return true;
	}
	if (!gm_lock_unless_nested(&gm_rec.journal, nested))
		return false;
	ret_rows->both = row_locked(header, domain, module, kind);
	ret_rows->kind = row_locked(header, domain, GM_USAGE_ALL_MODULES, kind);
	if (kind != GM_KIND_IPC)	/* another process holds those bytes, not this module */
		ret_rows->module = row_locked(header, domain, module, GM_USAGE_ALL_KINDS);
	entry = find(key);
	if (!entry) {
		*ret_rows = (struct gm_usage_rows){ 0 };
	} else if (gm_get(&entry->key)) {
		*ret_rows = entry->rows;	/* another thread was faster */
	} else {
		entry->rows = *ret_rows;
		gm_set_release(&entry->key, key);
	}
	gm_unlock(&gm_rec.journal);
	return true;
}

bool gm_delta_find_rows(struct gm_domain_state *state, uint8_t domain, uint16_t module,
			uint8_t kind, bool nested)
{
	struct gm_usage_rows rows;

	if (!rows_of(domain, module, kind, nested, &rows))
		return false;
	state->last_rows[0] = rows.both ? &gm_rec.usage[rows.both] : NULL;
	state->last_rows[1] = rows.module ? &gm_rec.usage[rows.module] : NULL;
	state->last_rows[2] = rows.kind ? &gm_rec.usage[rows.kind] : NULL;
	state->last_key = gm_usage_key(domain, module, kind);
	return true;
}
