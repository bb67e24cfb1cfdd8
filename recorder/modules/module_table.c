/*
 * module_table.c - the table of modules: one record for each life of a library in the process.
 *
 * Thread context: any; lock intern. Signal context: a handler that interrupts a publication gets
 * 0. Fork: none.
 */
#include <string.h>

#include "recorder/stacks/intern.h"
#include "recorder/record/tables.h"

static struct gm_module *table(const struct gm_header *header)
{
	return (void *)(gm_rec.base + header->regions[GM_REGION_MODULES].offset);
}

#define LATEST 256u

/* The record of the same library at the same place that is still loaded; 0 when there is none. It has
 * two when several threads met it at once, so the second is asked for soon after the first. */
static uint16_t find_locked(const struct gm_header *header, const struct gm_module *like)
{
	uint64_t count = gm_get(&header->regions[GM_REGION_MODULES].used) / sizeof(*like);

	for (uint64_t id = count; id-- > 1 && count - id <= LATEST;) {
		const struct gm_module *m = &table(header)[id];

		if (m->base == like->base && m->start == like->start && m->end == like->end &&
		    m->path == like->path && m->build_id_bytes == like->build_id_bytes &&
		    !memcmp(m->build_id, like->build_id, sizeof(m->build_id)) &&
		    !gm_get(&m->unload_tsc))
			return (uint16_t)id;
	}
	return GM_NONE;
}

static uint16_t publish_locked(struct gm_header *header, struct gm_module *new, const char *path)
{
	struct gm_region *region = &header->regions[GM_REGION_MODULES];
	uint64_t used = gm_get(&region->used), end = used + sizeof(*new);
	uint16_t id;
	int r;

	new->path = path && *path ? gm_intern_string_locked(header, path) : GM_NONE;
	id = find_locked(header, new);
	if (id)
		return id;
	if (!gm_lock(&gm_rec.journal))
		return GM_NONE;
	r = gm_region_reserve_locked(header, GM_REGION_MODULES, end);
	gm_unlock(&gm_rec.journal);
	if (r < 0)
		return GM_NONE;
	new->load_tsc = gm_stamp();
	memcpy(&table(header)[used / sizeof(*new)], new, sizeof(*new));
	gm_set_release(&region->used, end);
	return (uint16_t)(used / sizeof(*new));
}

uint16_t gm_publish_module(uint64_t base, uint64_t start, uint64_t end, const char *path,
			   const uint8_t *build_id, unsigned int build_id_bytes)
{
	struct gm_module new = { .base = base, .start = start, .end = end };
	struct gm_header *header = gm_header_get();
	struct gm_writer writer;
	uint16_t id = GM_NONE;

	if (!header)
		return GM_NONE;
	if (build_id && build_id_bytes <= sizeof(new.build_id)) {
		memcpy(new.build_id, build_id, build_id_bytes);
		new.build_id_bytes = (uint8_t)build_id_bytes;
	}
	gm_writer_enter(&writer);
	if (gm_lock_within(&gm_rec.intern, gm_patience(writer.nested))) {
		id = publish_locked(header, &new, path);
		gm_unlock(&gm_rec.intern);
	}
	gm_writer_leave(&writer);
	return id;
}

void gm_module_loaded_again(uint16_t module)
{
	struct gm_header *header = gm_header_get();

	if (header && module &&
	    module < gm_get_acquire(&header->regions[GM_REGION_MODULES].used) /
		     sizeof(struct gm_module))
		gm_set_release(&table(header)[module].unload_tsc, 0);
}

void gm_module_unloaded(uint16_t module)
{
	struct gm_header *header = gm_header_get();
	uint64_t loaded = 0;

	if (!header || !module ||
	    module >= gm_get_acquire(&header->regions[GM_REGION_MODULES].used) /
		      sizeof(struct gm_module))
		return;
	atomic_compare_exchange_strong_explicit(&table(header)[module].unload_tsc, &loaded,
						gm_stamp(), memory_order_release,
						memory_order_relaxed);
}
