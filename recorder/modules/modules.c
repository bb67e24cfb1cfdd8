/*
 * modules.c - find the object that holds an address (see modules.h).
 *
 * Owns the table of objects that have numbers, and a small cache of each thread in front of the table. The
 * table is a hash table with open addressing, by the start of the object. It is read without a lock and changed
 * under one; a slot is filled while @loaded is 0. A slot is never emptied: the slot of an unloaded object keeps
 * its identity, so that the object gets the same number when it is loaded again. Only when a new object finds
 * many such slots in its way does it take the first of them. Contexts as in modules.h.
 */
#define _GNU_SOURCE			/* program_invocation_name */
#include "recorder/modules/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "allocator/lock.h"
#include "recorder/journal/atomic.h"
#include "recorder/journal/probe.h"
#include "recorder/journal/sys.h"
#include "recorder/modules/object.h"
#include "recorder/unwind/unwind.h"

#define SLOTS 16384u			/* the most objects with numbers; further ones get 0 */
#define PROBES 64u			/* slots searched for a new object, if one of them is free */
#define CACHE_WAYS 16u
#define CALLER_FRAMES 32

struct slot {
	_Atomic(uint32_t) generation;	/* the last one in which the object was loaded */
	_Atomic(uint32_t) loaded;
	_Atomic(uintptr_t) start;	/* 0: never used */
	_Atomic(uintptr_t) end, link_map;
	uintptr_t base;
	uint64_t identity;
	uint16_t module;
	bool passes_on;			/* libcuda, libcudart ...: merely passes calls on */
};

static struct slot *slots;		/* 1 MiB; only touched pages take memory; set before @ready */
static struct gm_lock lock;		/* for changes of @slots, @used and @used_count */
static uint16_t used[SLOTS];		/* the slots in use, for the sweep */
static uint32_t used_count;
_Atomic(uint32_t) gm_modules_epoch = 1;	/* objects of earlier generations are checked again */
static _Atomic(bool) ready;
static struct gm_module_sink sink;

struct cached {
	uintptr_t pc;
	uint32_t generation;
	uint32_t slot;
};
static __thread struct cached cache[CACHE_WAYS];
static __thread volatile uint8_t cache_busy;	/* the cache is in use: signal handlers skip it */
static __thread volatile uint8_t changing;	/* this thread is changing the table */

/* ---- names ------------------------------------------------------------------------------------- */

#define PATH_BYTES 1200

static char executable[PATH_BYTES];	/* path of the executable, written once */

static void copy(char *dst, const char *src)
{
	size_t length = strlen(src);

	if (length >= PATH_BYTES) {		/* keep the end, which has the file's name */
		src += length - (PATH_BYTES - 1);
		length = PATH_BYTES - 1;
	}
	memcpy(dst, src, length + 1);
}

static void make_absolute(const char *name, char *dst)
{
	char directory[512];
	long got;
	size_t length;

	if (name[0] == '/' || !strchr(name, '/')) {
		copy(dst, name);
		return;
	}
	got = gm_syscall(SYS_getcwd, (long)directory, sizeof(directory), 0, 0, 0, 0);
	length = got > 1 && directory[0] == '/' ? (size_t)got - 1 : 0;
	while (name[0] == '.' && name[1] == '/')
		name += 2;
	if (length == 0 || length + 1 + strlen(name) >= PATH_BYTES) {
		copy(dst, name);
		return;
	}
	memcpy(dst, directory, length);
	if (length > 1)
		dst[length++] = '/';
	memcpy(dst + length, name, strlen(name) + 1);
}

static void find_executable(void)
{
	static const char deleted[] = " (deleted)";
	int saved = errno;
	long got = gm_syscall(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)executable,
			      sizeof(executable) - 1, 0, 0);

	if (got > 0) {
		size_t cut = sizeof(deleted) - 1;

		executable[got] = 0;
		/* The kernel appends " (deleted)" when the executable has been replaced. */
		if ((size_t)got > cut && !strcmp(executable + got - cut, deleted))
			executable[(size_t)got - cut] = 0;
	} else {			/* no /proc: the path given to execve, else argv[0] */
		const char *name = (const char *)getauxval(AT_EXECFN);

		make_absolute(name && name[0] ? name : program_invocation_name, executable);
	}
	errno = saved;
}

/* Return the path for the loader's name @name. "" is the executable. A relative path is made absolute by the present
 * working directory; the name of an object without a file (the vDSO) stays. */
static void path_of(const char *name, char ret_path[PATH_BYTES])
{
	if (name[0])
		make_absolute(name, ret_path);
	else
		copy(ret_path, executable);
}

/* Does the module at @path only pass allocations on (the CUDA driver and runtime, profilers'
 * libraries, this library, the loader)? */
static bool passes_on(const char *path)
{
	/* Compare the beginning of the file's name, because wheels rename files (libcudart-8774224f.so.12). */
	static const char *const names[] = {
		"libcuda.so", "libcudart.so", "libcudart-", "libcupti.so", "libcupti-",
		"libgpumem.so", "libdl.so", "libdl-", "ld-linux", "ld-2.", "ld.so",
	};
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

void gm_modules_init(const struct gm_module_sink *new_sink)
{
	static _Atomic(void *) memory;

	sink = *new_sink;
	find_executable();
	slots = gm_table_once(&memory, SLOTS * sizeof(*slots));
	if (slots)			/* without the table no address has a module */
		gm_set_release(&ready, true);
}

/* ---- the table --------------------------------------------------------------------------------- */

static uint32_t hash_start(uintptr_t start)
{
	return (uint32_t)((start * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

/* Take the lock. A signal handler never gets the lock if the thread that it interrupts holds it. If the holder never
 * returns (it was cancelled), no further object gets a number. */
static bool begin_change(void)
{
	bool held;

	if (changing)
		return false;
	changing = 1;
	atomic_signal_fence(memory_order_seq_cst);
	held = gm_lock(&lock);
	if (!held)
		changing = 0;
	return held;
}

static void end_change(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	changing = 0;
	gm_unlock(&lock);
}

static void retire_locked(struct slot *slot)
{
	if (!gm_get(&slot->loaded))
		return;
	gm_set(&slot->loaded, 0);
	if (slot->module && sink.unloaded)
		sink.unloaded(slot->module);
}

/* Note that the object of @slot is loaded in generation @now. */
static void revive_locked(struct slot *slot, const struct gm_object *object, uint32_t now)
{
	gm_set(&slot->link_map, object->link_map);
	if (!gm_get(&slot->loaded) && slot->module && sink.loaded_again)
		sink.loaded_again(slot->module);
	gm_set(&slot->loaded, 1);
	gm_set_release(&slot->generation, now);
}

static void fill_locked(struct slot *slot, const struct gm_object *object,
			const struct gm_object_identity *identity, uint32_t now)
{
	struct gm_module_info info = {
		.base = identity->base, .start = object->start, .end = object->end,
		.build_id_bytes = identity->build_id_bytes,
	};
	char path[PATH_BYTES];

	if (!gm_get(&slot->start))
		used[used_count++] = (uint16_t)(slot - slots);
	memcpy(info.build_id, identity->build_id, identity->build_id_bytes);
	path_of(identity->name, path);
	info.path = path;
	/* @loaded is 0 meanwhile, so readers skip the slot. */
	gm_set(&slot->end, object->end);
	gm_set(&slot->link_map, object->link_map);
	slot->module = sink.publish(&info);
	slot->passes_on = passes_on(path);
	slot->base = identity->base;
	slot->identity = identity->hash;
	gm_set(&slot->generation, now);
	gm_set_release(&slot->loaded, 1);
	gm_set_release(&slot->start, object->start);
}

/* Return the slot of an object that was already seen in this generation. */
static struct slot *seen(const struct gm_object *object, uint32_t now)
{
	uint32_t at = hash_start(object->start);

	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[(at + i) % SLOTS];
		uintptr_t start = gm_get_acquire(&slot->start);

		if (!start)
			return NULL;
		if (start == object->start && gm_get_acquire(&slot->loaded) &&
		    gm_get(&slot->end) == object->end &&
		    gm_get_acquire(&slot->generation) == now &&
		    gm_get(&slot->link_map) == object->link_map)
			return slot;
	}
	return NULL;
}

/* Return the slot of @object, which was not yet seen in generation @now: its old slot if the object has the
 * same identity, else a new one. Mark other objects with the same start as unloaded. NULL: the table is full. */
static struct slot *meet_locked(const struct gm_object *object,
				const struct gm_object_identity *identity, uint32_t now)
{
	struct slot *found = NULL, *vacant = NULL, *slot = NULL;
	uint32_t at = hash_start(object->start), i;

	for (i = 0; i < SLOTS; i++) {
		slot = &slots[(at + i) % SLOTS];
		if (!gm_get(&slot->start))
			break;			/* the end of the chain */
		if (gm_get(&slot->start) == object->start) {
			if (!found && slot->identity == identity->hash)
				found = slot;
			else
				retire_locked(slot);
		}
		if (!vacant && !gm_get(&slot->loaded))
			vacant = slot;
	}
	if (found) {
		revive_locked(found, object, now);
		return found;
	}
	if (vacant && (i >= PROBES || used_count >= SLOTS / 2))
		slot = vacant;
	else if (i == SLOTS)
		return NULL;
	fill_locked(slot, object, identity, now);
	return slot;
}

static struct slot *meet(const struct gm_object *object, uint32_t now)
{
	struct gm_object_identity identity;
	struct slot *slot;

	if (!gm_object_identify(object, &identity) || !begin_change())
		return NULL;
	slot = meet_locked(object, &identity, now);
	end_change();
	return slot;
}

static struct slot *find(uintptr_t pc)
{
	struct cached *way = &cache[(pc >> 2 ^ pc >> 6) % CACHE_WAYS];
	uint32_t now = gm_get_acquire(&gm_modules_epoch);
	struct gm_object object;
	struct slot *slot = NULL;
	bool busy = cache_busy;

	cache_busy = 1;
	atomic_signal_fence(memory_order_seq_cst);
	if (!busy && way->pc == pc && way->generation == now)
		slot = &slots[way->slot];
	atomic_signal_fence(memory_order_seq_cst);
	cache_busy = busy;
	if (slot)
		return slot;
	if (!gm_get_acquire(&ready) || !gm_object_find(pc, &object))
		return NULL;
	slot = seen(&object, now);
	if (!slot)
		slot = meet(&object, now);
	if (slot && !busy) {
		cache_busy = 1;
		atomic_signal_fence(memory_order_seq_cst);
		way->pc = pc;
		way->generation = now;
		way->slot = (uint32_t)(slot - slots);
		atomic_signal_fence(memory_order_seq_cst);
		cache_busy = 0;
	}
	return slot;
}

uint16_t gm_modules_lookup(uintptr_t pc, uint64_t *ret_offset)
{
	struct slot *slot = find(pc);

	if (ret_offset)
		*ret_offset = pc - (slot && slot->module ? slot->base : 0);
	return slot ? slot->module : 0;
}

/* Find, in @pcs, the first frame beyond @return_address that does not pass calls on. */
static bool first_asker(const uintptr_t *pcs, int count, uintptr_t return_address,
			struct slot **ret_slot, uintptr_t *ret_pc)
{
	int i = 0;

	while (i < count && pcs[i] != return_address)
		i++;
	if (i == count)			/* the hook's frame was not found: begin at the innermost */
		i = -1;
	for (i++; i < count; i++) {
		struct slot *slot = find(pcs[i]);

		if (slot && slot->passes_on)
			continue;
		*ret_slot = slot;
		*ret_pc = pcs[i];
		return true;
	}
	return false;
}

uint16_t gm_modules_of_caller(const void *return_address)
{
	const struct slot *slot = find((uintptr_t)return_address);

	return slot && !slot->passes_on ? slot->module : 0;
}

uint16_t gm_modules_caller(const void *return_address, uintptr_t *ret_pc)
{
	uintptr_t pc = (uintptr_t)return_address;
	struct slot *slot = find(pc);

	if (slot && slot->passes_on) {
		uintptr_t pcs[CALLER_FRAMES];
		struct gm_regs regs;
		unsigned int flags;
		int count;

		gm_regs_capture(&regs);
		count = gm_unwind(&regs, pcs, CALLER_FRAMES / 4, &flags);
		if (!first_asker(pcs, count, pc, &slot, &pc) && (flags & GM_UNWIND_MORE)) {
			count = gm_unwind(&regs, pcs, CALLER_FRAMES, NULL);
			first_asker(pcs, count, pc, &slot, &pc);
		}
	}
	if (ret_pc)
		*ret_pc = pc;
	return slot ? slot->module : 0;
}

uint16_t gm_modules_asker(const uintptr_t *pcs, int count)
{
	for (int i = 0; i < count; i++) {
		struct slot *slot = find(pcs[i]);

		if (!slot || !slot->passes_on)
			return slot ? slot->module : 0;
	}
	return count > 0 ? gm_modules_lookup(pcs[0], NULL) : 0;
}

/* Mark the objects that are no longer in their place as unloaded. */
static void sweep(void)
{
	if (!begin_change())
		return;
	for (uint32_t i = 0; i < used_count; i++) {
		struct slot *slot = &slots[used[i]];
		struct gm_object object;
		uintptr_t start = gm_get(&slot->start);

		if (gm_get(&slot->loaded) &&
		    (!gm_object_find(start, &object) || object.start != start ||
		     object.end != gm_get(&slot->end) ||
		     object.link_map != gm_get(&slot->link_map)))
			retire_locked(slot);
	}
	end_change();
}

void gm_modules_forget(void)
{
	atomic_fetch_add_explicit(&gm_modules_epoch, 1, memory_order_acq_rel);
	gm_unwind_flush();
}

void gm_modules_generation_bump(void)
{
	gm_modules_forget();
	/* If look-ups are expensive, an object counts as unloaded only when another one lies in its place. */
	if (gm_object_is_exact())
		sweep();
}
