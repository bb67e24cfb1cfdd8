/*
 * handle.c - what programs hold in place of objects: addresses in a range that nobody can read.
 *
 * A handle is the address of the n-th slot of a PROT_NONE range; the slot's type and object lie in
 * a table beside it. A dropped handle goes on top of its type's stack and is the next one given
 * out, as a driver's heap does: code that keeps stale handles meets a stranger's object. A program
 * that dereferences a handle faults, as it should.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/state.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SLOT_SIZE 64		/* distance of two handles */
#define MAX_SLOTS (1u << 20)

struct slot {
	enum fc_htype type;
	uint32_t next_free;	/* index + 1 */
	void *obj;
};

static struct slot *slots;
static uint32_t n_slots;
static uint32_t free_head[FC_H_TYPES];	/* index + 1; 0: none */
static char *range;

static bool start(void)
{
	void *p;

	if (range)
		return true;
	p = mmap(NULL, (size_t)MAX_SLOTS * SLOT_SIZE, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	slots = calloc(MAX_SLOTS, sizeof(*slots));
	if (!slots) {
		munmap(p, (size_t)MAX_SLOTS * SLOT_SIZE);
		return false;
	}
	range = p;
	return true;
}

void *fc_handle_new(enum fc_htype type, void *obj)
{
	uint32_t i;

	if (!start())
		return NULL;
	if (free_head[type]) {
		i = free_head[type] - 1;
		free_head[type] = slots[i].next_free;
	} else if (n_slots < MAX_SLOTS) {
		i = n_slots++;
	} else {
		return NULL;
	}
	slots[i].type = type;
	slots[i].obj = obj;
	return range + (size_t)i * SLOT_SIZE;
}

static struct slot *slot_of(const void *handle)
{
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)range;

	if (!range || offset >= (uintptr_t)n_slots * SLOT_SIZE || offset % SLOT_SIZE)
		return NULL;
	return &slots[offset / SLOT_SIZE];
}

void *fc_handle_get(const void *handle, enum fc_htype type)
{
	struct slot *s = slot_of(handle);

	return s && s->type == type ? s->obj : NULL;
}

void fc_handle_drop(void *handle)
{
	struct slot *s = slot_of(handle);

	if (!s || s->type == FC_H_FREE)
		return;
	s->next_free = free_head[s->type];
	free_head[s->type] = (uint32_t)(s - slots) + 1;
	s->type = FC_H_FREE;
	s->obj = NULL;
}

/* Plain memory behind handles that no file keeps a list of. */
static bool plain(enum fc_htype type)
{
	return type == FC_H_TEXTURE || type == FC_H_DESC || type == FC_H_EXTSEM ||
	       type == FC_H_GREEN;
}

void fc_handle_reset(void)
{
	for (uint32_t i = 0; i < n_slots; i++)
		if (plain(slots[i].type))
			free(slots[i].obj);
	if (range)
		munmap(range, (size_t)MAX_SLOTS * SLOT_SIZE);
	free(slots);
	range = NULL;
	slots = NULL;
	n_slots = 0;
	for (int i = 0; i < FC_H_TYPES; i++)
		free_head[i] = 0;
}
