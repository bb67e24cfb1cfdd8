/*
 * nvtx_text.c - the texts of NVTX: see nvtx.h.
 *
 * Owns the registered texts: a hash table of chains in one area of memory, which is never unmapped. A text
 * is found without a lock and added under one. A handle that the program passes is accepted only if it
 * points into the area and the text there names itself: programs pass other handles, too, since NVTX
 * ignores them where there is no tool.
 */
#include <string.h>

#include "allocator/lock.h"
#include "preload/api/nvtx.h"
#include "recorder/record/annotations.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"

#define BUCKETS 1024u
#define AREA_BYTES (16u << 20)		/* of registered texts, touched as used */
#define LOCK_NS UINT64_C(10000000)	/* a forked child may find it held for ever */

struct gm_nvtx_text {
	const struct gm_nvtx_text *self;
	struct gm_nvtx_text *next;
	_Atomic(uint32_t) id;		/* string id in the journal, once it has one */
	uint32_t hash;
	uint16_t number, length;
	char text[];
};

static _Atomic(struct gm_nvtx_text *) buckets[BUCKETS];
static struct gm_lock lock;		/* of what follows, and for adding to @buckets */
static _Atomic(void *) area;
static _Atomic(uint32_t) area_used;
static uint16_t last_number;

static uint32_t hash_of(const char *text, uint32_t length)
{
	uint32_t hash = 2166136261u;

	while (length--)
		hash = (hash ^ (uint8_t)*text++) * 16777619u;
	return hash;
}

static struct gm_nvtx_text *find(const char *text, uint32_t length, uint32_t hash)
{
	struct gm_nvtx_text *at = gm_get_acquire(&buckets[hash % BUCKETS]);

	while (at && (at->hash != hash || at->length != length ||
		      memcmp(at->text, text, length) != 0))
		at = at->next;
	return at;
}

static struct gm_nvtx_text *room_locked(uint32_t length)
{
	uint32_t bytes = (uint32_t)(sizeof(struct gm_nvtx_text) + length + 7) & ~7u;
	char *memory = gm_table_once(&area, AREA_BYTES);
	uint32_t used = gm_get(&area_used);

	if (!memory || AREA_BYTES - used < bytes)
		return NULL;
	gm_set_release(&area_used, used + bytes);
	return (void *)(memory + used);
}

/* The text that a handle of the program's stands for; NULL: it is none of ours. */
static struct gm_nvtx_text *ours(const struct gm_nvtx_text *handle)
{
	uint32_t used = gm_get_acquire(&area_used);
	uintptr_t at = (uintptr_t)handle - (uintptr_t)gm_get_acquire(&area);

	if (at >= used || used - at < sizeof(*handle) || at % _Alignof(struct gm_nvtx_text) ||
	    handle->self != handle)
		return NULL;
	return (struct gm_nvtx_text *)handle;
}

static struct gm_nvtx_text *add(const char *text, uint32_t length, uint32_t hash)
{
	struct gm_nvtx_text *made;

	if (!gm_lock_within(&lock, LOCK_NS))
		return NULL;
	made = find(text, length, hash);
	if (!made)
		made = room_locked(length);
	if (made && !made->number) {
		made->hash = hash;
		made->length = (uint16_t)length;
		made->number = ++last_number ? last_number : ++last_number;
		memcpy(made->text, text, length);
		made->self = made;
		made->next = gm_get(&buckets[hash % BUCKETS]);
		gm_set_release(&buckets[hash % BUCKETS], made);
	}
	gm_unlock(&lock);
	return made;
}

const struct gm_nvtx_text *gm_nvtx_register(const char *text)
{
	uint32_t length = text ? (uint32_t)strnlen(text, GM_NVTX_TEXT) : 0;
	uint32_t hash = hash_of(text, length);
	struct gm_nvtx_text *known;

	if (!text)
		return NULL;
	known = find(text, length, hash);
	return known ? known : add(text, length, hash);
}

/* wchar_t holds a code point. What is none becomes U+FFFD; what does not fit is cut off. */
static const char *narrow(const wchar_t *wide, char ret[GM_NVTX_TEXT + 1])
{
	uint32_t used = 0;

	for (; *wide; wide++) {
		uint32_t c = (uint32_t)*wide;
		uint32_t more;

		if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			c = 0xfffd;
		more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
		if (used + more + 1 > GM_NVTX_TEXT)
			break;
		ret[used++] = (char)(more ? (0xf0u << (3 - more) & 0xffu) | c >> 6 * more : c);
		while (more--)
			ret[used++] = (char)(0x80 | (c >> 6 * more & 0x3f));
	}
	ret[used] = '\0';
	return ret;
}

const struct gm_nvtx_text *gm_nvtx_register_wide(const wchar_t *text)
{
	char narrowed[GM_NVTX_TEXT + 1];

	return text ? gm_nvtx_register(narrow(text, narrowed)) : NULL;
}

/* Its id in the journal is kept with it. */
uint32_t gm_nvtx_id(const struct gm_nvtx_text *registered)
{
	struct gm_nvtx_text *text = ours(registered);
	uint32_t id = text ? gm_get(&text->id) : GM_NONE;

	if (!text || id)
		return id;
	id = gm_intern_string(text->text, text->length);
	gm_set(&text->id, id);
	return id;
}

uint32_t gm_nvtx_id_of(const char *text)
{
	return text ? gm_intern_string(text, (uint32_t)strnlen(text, GM_NVTX_TEXT)) : GM_NONE;
}

uint32_t gm_nvtx_id_of_wide(const wchar_t *text)
{
	char narrowed[GM_NVTX_TEXT + 1];

	return text ? gm_nvtx_id_of(narrow(text, narrowed)) : GM_NONE;
}

uint32_t gm_nvtx_id_of_event(const struct gm_nvtx_attributes *event)
{
	if (!event || event->size < sizeof(*event))
		return GM_NONE;
	switch (event->message_type) {
	case GM_NVTX_ASCII:
		return gm_nvtx_id_of(event->message);
	case GM_NVTX_UNICODE:
		return gm_nvtx_id_of_wide(event->message);
	case GM_NVTX_REGISTERED:
		return gm_nvtx_id(event->message);
	default:
		return GM_NONE;
	}
}

uint16_t gm_nvtx_scope(const struct gm_nvtx_text *domain)
{
	const struct gm_nvtx_text *text = ours(domain);

	return text ? text->number : 0;
}
