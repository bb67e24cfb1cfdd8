/*
 * intern.c - the append-only areas: strings, frames, stacks, modules. See intern.h.
 *
 * A record is written behind @used and published by moving @used past it. The hash tables that find records are
 * private memory and end with the process.
 */
#include "recorder/stacks/intern.h"

#include <errno.h>
#include <string.h>

#include "recorder/journal/sys.h"
#include "recorder/record/tables.h"

#define FIRST_IDS 1024u
#define LATEST 256u			/* newest modules among which an equal one is searched */

/* Content to be interned, and how to compare it with a record of its area. */
struct item {
	enum gm_region_id area;
	struct gm_intern_table *table;
	uint32_t hash;
	const void *content;
	uint32_t count;			/* bytes of text; frames of a stack */
	uint16_t flags;
	bool (*same)(const struct item *item, const void *record);
	void (*store)(const struct item *item, void *record);
	uint32_t bytes;			/* size of the record */
};

static uint64_t mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 32;
}

static uint32_t hash_bytes(const void *content, size_t bytes)
{
	const uint8_t *at = content;
	uint64_t h = bytes, word = 0;

	for (; bytes >= 8; bytes -= 8, at += 8) {
		memcpy(&word, at, 8);
		h = mix(h, word);
	}
	word = 0;
	if (bytes)
		memcpy(&word, at, bytes);
	return (uint32_t)mix(h, word);
}

/* The names and line of a Python frame are part of its identity: they are there from the first, and do not change. */
static uint32_t hash_frame(const struct gm_frame *frame)
{
	uint64_t h = mix(mix(frame->offset, frame->module), frame->flags);

	if (frame->flags & GM_FRAME_PYTHON)
		h = mix(mix(mix(h, frame->name), frame->filename), frame->line);
	return (uint32_t)h;
}

static void *record_at(enum gm_region_id area, uint32_t id)
{
	const struct gm_region *region = gm_region(area);
	uint64_t size = region->item_bytes ? region->item_bytes : 1;

	return gm_rec.base + region->offset + id * size;
}

static uint32_t hash_of(enum gm_region_id area, const void *record)
{
	if (area == GM_REGION_FRAMES)
		return hash_frame(record);
	if (area == GM_REGION_STACKS)
		return ((const struct gm_stack *)record)->hash;
	return ((const struct gm_string *)record)->hash;
}

int gm_intern_begin(void)
{
	struct gm_intern_table *tables[] = { &gm_rec.strings, &gm_rec.stacks, &gm_rec.frames };

	for (unsigned int i = 0; i < 3; i++)
		*tables[i] = (struct gm_intern_table){ .mask = FIRST_IDS - 1 };
	for (unsigned int i = 0; i < 3; i++) {
		tables[i]->ids = gm_map_private(FIRST_IDS * sizeof(uint32_t));
		if (!tables[i]->ids)
			return -ENOMEM;
	}
	return 0;
}

void gm_intern_end(void)
{
	struct gm_intern_table *tables[] = { &gm_rec.strings, &gm_rec.stacks, &gm_rec.frames };

	for (unsigned int i = 0; i < 3; i++) {
		if (tables[i]->ids)
			gm_sys.unmap(tables[i]->ids, (tables[i]->mask + 1) * sizeof(uint32_t));
		tables[i]->ids = NULL;
	}
}

/* Double a table that is three quarters full. If there is no memory for that, the table may fill up to fifteen
 * sixteenths. Returns whether there is room for one id more. */
static bool make_room(struct gm_intern_table *table, enum gm_region_id area)
{
	uint32_t size = table->mask + 1, *old = table->ids, *ids;

	if (table->count < size / 4 * 3)
		return true;
	ids = size < UINT32_C(1) << 30 ? gm_map_private(size * 2 * sizeof(*ids)) : NULL;
	if (!ids)
		return table->count < size / 16 * 15;
	for (uint32_t i = 0; i < size; i++) {
		uint32_t at;

		if (!old[i])
			continue;
		at = hash_of(area, record_at(area, old[i])) & (size * 2 - 1);
		while (ids[at])
			at = (at + 1) & (size * 2 - 1);
		ids[at] = old[i];
	}
	table->ids = ids;
	table->mask = size * 2 - 1;
	gm_sys.unmap(old, size * sizeof(*old));
	return true;
}

/* Make room for @bytes at the end of @area. Only the holder of the intern lock appends. */
static bool reserve(struct gm_header *header, enum gm_region_id area, uint64_t bytes)
{
	struct gm_region *region = &header->regions[area];
	uint64_t end = gm_get(&region->used) + bytes;
	int r;

	if (gm_likely(end <= gm_get_acquire(&region->populated)))
		return true;
	if (!gm_lock(&gm_rec.journal))
		return false;
	r = gm_region_reserve_locked(header, area, end);
	gm_unlock(&gm_rec.journal);
	return r == 0;
}

/* Return the id of @item's record, and make the record when there is none; 0 when there is no room. Intern lock
 * held. */
static uint32_t intern_locked(struct gm_header *header, const struct item *item)
{
	struct gm_region *region = &header->regions[item->area];
	struct gm_intern_table *table = item->table;
	uint64_t used = gm_get(&region->used);
	uint32_t at = item->hash & table->mask, id;

	for (; table->ids[at]; at = (at + 1) & table->mask) {
		const void *record = record_at(item->area, table->ids[at]);

		if (hash_of(item->area, record) == item->hash && item->same(item, record))
			return table->ids[at];
	}
	if (!make_room(table, item->area)) {
		gm_count(&region->refused, 1);
		return GM_NONE;
	}
	if (!reserve(header, item->area, item->bytes))
		return GM_NONE;			/* counted, unless the journal lock was not acquired */
	for (at = item->hash & table->mask; table->ids[at];)
		at = (at + 1) & table->mask;
	id = (uint32_t)(region->item_bytes ? used / region->item_bytes : used);
	item->store(item, record_at(item->area, id));
	gm_set_release(&region->used, used + item->bytes);
	table->ids[at] = id;
	table->count++;
	return id;
}

static uint32_t intern(const struct item *item)
{
	struct gm_header *header = gm_header_get();
	struct gm_writer writer;
	uint32_t id = GM_NONE;

	gm_writer_enter(&writer);
	if (gm_lock_unless_nested(&gm_rec.intern, writer.nested)) {
		id = intern_locked(header, item);
		gm_unlock(&gm_rec.intern);
	} else {
		gm_count(&header->regions[item->area].refused, 1);
	}
	gm_writer_leave(&writer);
	return id;
}

static bool same_string(const struct item *item, const void *record)
{
	const struct gm_string *string = record;

	return string->length == item->count && !memcmp(string->text, item->content, item->count);
}

static void store_string(const struct item *item, void *record)
{
	struct gm_string *string = record;

	string->length = item->count;
	string->hash = item->hash;
	memcpy(string->text, item->content, item->count);
	/* The NUL and the padding are zero already, because an append-only area is zero until it is written. */
}

static struct item string_item(const char *text, uint32_t length)
{
	if (length > GM_STRING_MAX) {
		length = GM_STRING_MAX;
		while (length && ((uint8_t)text[length] & 0xc0) == 0x80)
			length--;		/* do not cut within a character */
	}
	return (struct item){
		.area = GM_REGION_STRINGS, .table = &gm_rec.strings,
		.hash = hash_bytes(text, length), .content = text, .count = length,
		.same = same_string, .store = store_string,
		.bytes = (uint32_t)(sizeof(struct gm_string) + length + 1 + 7) & ~7u,
	};
}

uint32_t gm_intern_string(const char *text, uint32_t length)
{
	struct item item;

	if (!gm_header_get() || !text)
		return GM_NONE;
	item = string_item(text, length);
	return intern(&item);
}

static bool same_frame(const struct item *item, const void *record)
{
	const struct gm_frame *a = item->content, *b = record;

	if (a->module != b->module || a->offset != b->offset || a->flags != b->flags)
		return false;
	return !(a->flags & GM_FRAME_PYTHON) ||
	       (a->name == b->name && a->filename == b->filename && a->line == b->line);
}

static void store_frame(const struct item *item, void *record)
{
	memcpy(record, item->content, sizeof(struct gm_frame));
}

uint32_t gm_intern_frame(const struct gm_frame *frame)
{
	struct item item = {
		.area = GM_REGION_FRAMES, .table = &gm_rec.frames, .hash = hash_frame(frame),
		.content = frame, .same = same_frame, .store = store_frame,
		.bytes = sizeof(*frame),
	};

	return gm_header_get() ? intern(&item) : GM_NONE;
}

void gm_frame_name(uint32_t id, uint32_t name, uint32_t filename, uint32_t line)
{
	struct gm_header *header = gm_header_get();
	struct gm_frame *frame;

	if (!header || !id || id >= gm_get_acquire(&header->regions[GM_REGION_FRAMES].used) /
				    sizeof(struct gm_frame))
		return;
	frame = record_at(GM_REGION_FRAMES, id);
	__atomic_store_n(&frame->filename, filename, __ATOMIC_RELAXED);
	__atomic_store_n(&frame->line, line, __ATOMIC_RELAXED);
	__atomic_store_n(&frame->name, name, __ATOMIC_RELEASE);
}

static bool same_stack(const struct item *item, const void *record)
{
	const struct gm_stack *stack = record;

	return stack->count == item->count && stack->flags == item->flags &&
	       !memcmp(stack->frames, item->content, item->count * sizeof(stack->frames[0]));
}

static void store_stack(const struct item *item, void *record)
{
	struct gm_stack *stack = record;

	stack->hash = item->hash;
	stack->count = (uint16_t)item->count;
	stack->flags = item->flags;
	memcpy(stack->frames, item->content, item->count * sizeof(stack->frames[0]));
}

uint32_t gm_intern_stack(const uint32_t *frames, uint32_t count, bool truncated)
{
	uint32_t kept = count < GM_STACK_MAX ? count : GM_STACK_MAX;
	struct item item = {
		.area = GM_REGION_STACKS, .table = &gm_rec.stacks,
		.hash = hash_bytes(frames, kept * sizeof(*frames)), .content = frames,
		.count = kept, .flags = truncated || kept < count,
		.same = same_stack, .store = store_stack,
		.bytes = (uint32_t)(sizeof(struct gm_stack) + kept * sizeof(*frames) + 7) & ~7u,
	};

	return gm_header_get() && count ? intern(&item) : GM_NONE;
}

/* ---- modules ---- */

static struct gm_module *modules(const struct gm_header *header)
{
	return (void *)(gm_rec.base + header->regions[GM_REGION_MODULES].offset);
}

/* Return the record of the same library at the same place that is still loaded; 0 when there is none. Several
 * threads may publish a library at once, but soon after one another, so only the LATEST records are searched. */
static uint16_t find_module_locked(const struct gm_header *header, const struct gm_module *like)
{
	uint64_t count = gm_get(&header->regions[GM_REGION_MODULES].used) / sizeof(*like);

	for (uint64_t id = count; id-- > 1 && count - id <= LATEST;) {
		const struct gm_module *m = &modules(header)[id];

		if (m->base == like->base && m->start == like->start && m->end == like->end &&
		    m->path == like->path && m->build_id_bytes == like->build_id_bytes &&
		    !memcmp(m->build_id, like->build_id, sizeof(m->build_id)) &&
		    !gm_get(&m->unload_tsc))
			return (uint16_t)id;
	}
	return GM_NONE;
}

static uint16_t publish_module_locked(struct gm_header *header, struct gm_module *new, const char *path)
{
	struct gm_region *region = &header->regions[GM_REGION_MODULES];
	uint64_t used = gm_get(&region->used);
	uint16_t id;

	new->path = GM_NONE;
	if (path && *path) {
		struct item item = string_item(path, (uint32_t)strnlen(path, GM_STRING_MAX + 1));

		new->path = intern_locked(header, &item);
	}
	id = find_module_locked(header, new);
	if (id)
		return id;
	if (!reserve(header, GM_REGION_MODULES, sizeof(*new)))
		return GM_NONE;
	new->load_tsc = gm_stamp();
	memcpy(&modules(header)[used / sizeof(*new)], new, sizeof(*new));
	gm_set_release(&region->used, used + sizeof(*new));
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
	if (gm_lock_unless_nested(&gm_rec.intern, writer.nested)) {
		id = publish_module_locked(header, &new, path);
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
		gm_set_release(&modules(header)[module].unload_tsc, 0);
}

void gm_module_unloaded(uint16_t module)
{
	struct gm_header *header = gm_header_get();
	uint64_t loaded = 0;

	if (!header || !module ||
	    module >= gm_get_acquire(&header->regions[GM_REGION_MODULES].used) /
		      sizeof(struct gm_module))
		return;
	atomic_compare_exchange_strong_explicit(&modules(header)[module].unload_tsc, &loaded,
						gm_stamp(), memory_order_release,
						memory_order_relaxed);
}
