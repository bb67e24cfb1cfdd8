/*
 * libunwind.c - stacks by libunwind's generic half: see libunwind.h.
 *
 * Owns the pointer by which it is published, and a few places to walk in: a cursor and an address
 * space each, whose cache of rules is its own. What the local half does and this one does not:
 * dl_iterate_phdr for every rule (deadlocks against dlopen: libunwind #16; hangs in a forked child,
 * since glibc does not reset dl_load_write_lock), a trace cache that no flush empties (frames of an
 * unloaded library for those of the next one), reads of a stack that nobody checked.
 *
 * No header of libunwind's is needed: what is used of it is ABI since 1.1, but for two places that
 * moved with the versions, and are found by trying.
 */
#include "recorder/libunwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "recorder/cfi.h"
#include "recorder/object.h"
#include "recorder/probe.h"
#include "recorder/sys.h"
#include "recorder/window.h"

#if defined(__aarch64__)
#define LIBRARY "libunwind-aarch64.so.8"
#define PREFIX "_Uaarch64_"
#else
#define LIBRARY "libunwind-x86_64.so.8"
#define PREFIX "_Ux86_64_"
#endif

#define PLACES 16u			/* walks at a time */
#define CURSOR_WORDS 4096u		/* the most that any version of it has (aarch64, 1.1) */

enum { UNW_EBADREG = 3, UNW_EINVAL = 8, UNW_ENOINFO = 10 };	/* unw_error_t, given negative */
enum { UNW_CACHE_GLOBAL = 1 };		/* unw_caching_policy_t: one of the address space's */
enum { UNW_INFO_FORMAT_REMOTE_TABLE = 2 };

typedef uint64_t word;			/* unw_word_t */

/* unw_accessors_t; later versions have more members, all of which may be NULL. */
struct accessors {
	int (*find_proc_info)(void *space, word ip, void *info, int need, void *arg);
	void (*put_unwind_info)(void *space, void *info, void *arg);
	int (*get_dyn_info_list_addr)(void *space, word *ret, void *arg);
	int (*access_mem)(void *space, word address, word *value, int write, void *arg);
	int (*access_reg)(void *space, int number, word *value, int write, void *arg);
	int (*access_fpreg)(void *space, int number, void *value, int write, void *arg);
	int (*resume)(void *space, void *cursor, void *arg);
	int (*get_proc_name)(void *space, word ip, char *name, size_t bytes, word *offset, void *arg);
	void *later[8];
};

static struct {
	void *(*create_addr_space)(struct accessors *accessors, int byte_order);
	int (*set_caching_policy)(void *space, int policy);
	void (*flush_cache)(void *space, word from, word to);
	int (*init_remote)(void *cursor, void *space, void *arg);
	int (*step)(void *cursor);
	int (*get_reg)(void *cursor, int number, word *value);
	int (*is_signal_frame)(void *cursor);
	int (*search_table)(void *space, word ip, void *table, void *info, int need, void *arg);
	/* what the versions do not agree on */
	unsigned int table_at;		/* of unw_dyn_info_t, in words: its u.rti */
	int ip_register;
} unw;

struct place {
	_Atomic(uint32_t) busy;
	void *space;
	uint32_t flushed;		/* generation that its cache is of */
	const struct gm_regs *from;
	struct gm_window window;
	uintptr_t tables, tables_end;	/* of the object last found */
	uintptr_t buffered, buffered_end;	/* of them, in @buffer */
	uint8_t buffer[256];
	word cursor[CURSOR_WORDS];
};

static struct place *places;		/* PLACES of them; there when @published is set */
static _Atomic(struct place *) published;	/* @places; NULL: not there, or not to be used */
static _Atomic(uint32_t) generation;	/* objects came or went */
static bool tried;			/* by the helper thread; a child has inherited what came of it */

/* ---- what it asks of us ------------------------------------------------------------------------ */

static size_t read_table(void *ctx, void *dst, uintptr_t address, size_t bytes)
{
	(void)ctx;
	return gm_probe_copy(dst, address, bytes);
}

/* A word of the tables: a buffer full at a time, since every copy is a system call. */
static bool read_buffered(struct place *place, uintptr_t address, word *ret)
{
	if (address < place->buffered || address + sizeof(*ret) > place->buffered_end) {
		place->buffered = place->buffered_end = address;
		place->buffered_end += gm_probe_copy(place->buffer, address, sizeof(place->buffer));
		if (place->buffered_end - address < sizeof(*ret))
			return false;
	}
	memcpy(ret, place->buffer + (address - place->buffered), sizeof(*ret));
	return true;
}

static int access_mem(void *space, word address, word *value, int write, void *arg)
{
	struct place *place = arg;
	uintptr_t there;

	(void)space;
	if (write)
		return -UNW_EINVAL;
	if (address >= place->tables && address < place->tables_end)
		return read_buffered(place, address, value) ? 0 : -UNW_EINVAL;
	if (!gm_window_read(&place->window, address, &there))
		return -UNW_EINVAL;
	*value = there;
	return 0;
}

static int access_reg(void *space, int number, word *value, int write, void *arg)
{
	const struct gm_regs *from = ((struct place *)arg)->from;

	(void)space;
	if (write || number < 0 || number >= GM_REG_COUNT)
		return -UNW_EBADREG;
	*value = from->r[number];
	return 0;
}

static int access_fpreg(void *space, int number, void *value, int write, void *arg)
{
	(void)space, (void)number, (void)value, (void)write, (void)arg;
	return -UNW_EBADREG;
}

static int resume(void *space, void *cursor, void *arg)
{
	(void)space, (void)cursor, (void)arg;
	return -UNW_EINVAL;
}

static int dyn_info_list(void *space, word *ret, void *arg)
{
	(void)space, (void)ret, (void)arg;
	return -UNW_ENOINFO;
}

static void put_info(void *space, void *info, void *arg)
{
	(void)space, (void)info, (void)arg;
}

/* The sorted table of the object that holds @ip, for libunwind to search. */
static int find_info(void *space, word ip, void *info, int need, void *arg)
{
	enum { UDATA4 = 0x03, DATAREL_SDATA4 = 0x3b };
	struct place *place = arg;
	struct gm_cfi_source source = { .read = read_table };
	word table[16] = { 0 };		/* unw_dyn_info_t */
	struct gm_cfi_cursor cursor;
	struct gm_object object;
	uint8_t head[4];
	uint64_t count;

	if (!gm_object_find(ip, &object) || !object.eh_frame_hdr)
		return -UNW_ENOINFO;
	place->tables = source.start = object.start;
	place->tables_end = source.end = object.end;
	gm_cfi_cursor_open(&cursor, &source, object.eh_frame_hdr, object.end);
	for (unsigned int i = 0; i < sizeof(head); i++)
		head[i] = (uint8_t)gm_cfi_unsigned(&cursor, 1);
	gm_cfi_pointer(&cursor, head[1], object.eh_frame_hdr);
	count = gm_cfi_pointer(&cursor, head[2], object.eh_frame_hdr);
	if (cursor.failed || head[0] != 1 || head[2] != UDATA4 || head[3] != DATAREL_SDATA4 ||
	    count == 0 || count > (object.end - cursor.at) / 8)
		return -UNW_ENOINFO;
	table[2] = object.start;
	table[3] = object.end;
	table[5] = UNW_INFO_FORMAT_REMOTE_TABLE;
	table[unw.table_at + 1] = object.eh_frame_hdr;	/* segbase */
	table[unw.table_at + 2] = count;		/* in words, two of which are an entry */
	table[unw.table_at + 3] = cursor.at;
	return unw.search_table(space, ip, table, info, need, arg);
}

static struct accessors accessors = {
	.find_proc_info = find_info, .put_unwind_info = put_info,
	.get_dyn_info_list_addr = dyn_info_list, .access_mem = access_mem,
	.access_reg = access_reg, .access_fpreg = access_fpreg, .resume = resume,
};

/* ---- a walk ------------------------------------------------------------------------------------ */

static struct place *take_place(struct place *all)
{
	for (unsigned int i = 0; all && i < PLACES; i++)
		if (!atomic_load_explicit(&all[i].busy, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&all[i].busy, 1, memory_order_acquire))
			return &all[i];
	return NULL;
}

static void begin(struct place *place, const struct gm_regs *from)
{
	uint32_t now = atomic_load_explicit(&generation, memory_order_acquire);

	place->from = from;
	place->tables = place->tables_end = 0;
	place->buffered = place->buffered_end = 0;
	gm_window_open(&place->window, from->r[GM_REG_SP]);
	if (place->flushed != now) {
		place->flushed = now;
		unw.flush_cache(place->space, 0, 0);
	}
}

/* Stands at a frame; returns whether there is another one beyond it. */
static bool next_frame(struct place *place, word *sp, word *ret_end, unsigned int *flags)
{
	bool is_signal = unw.is_signal_frame(place->cursor) > 0;
	int more = unw.step(place->cursor);
	word before = *sp;

	*ret_end = UINTPTR_MAX;
	if (more <= 0 || unw.get_reg(place->cursor, GM_REG_SP, sp)) {
		*flags |= more ? GM_UNWIND_TRUNCATED : 0;
		return false;
	}
	if (is_signal)
		*flags |= GM_UNWIND_SIGNAL;
	else if (*sp <= before) {	/* only leaf functions of aarch64 have no frame at all */
		bool leaf = GM_REG_COUNT == 33 && *sp == before;

		*flags |= leaf ? 0 : GM_UNWIND_TRUNCATED;
		if (!leaf)
			return false;
	}
	*ret_end = *sp;
	return true;
}

static int walk(struct place *place, uintptr_t *pcs, uintptr_t *ends, int max, int known,
		unsigned int *flags)
{
	word sp = place->from->r[GM_REG_SP], ip, end;
	int count = 0;
	bool more;

	if (unw.init_remote(place->cursor, place->space, place))
		return -EBUSY;
	do {
		if (unw.get_reg(place->cursor, unw.ip_register, &ip))
			break;
		if (count && !ip)
			break;
		if (count == max) {
			*flags |= GM_UNWIND_MORE;
			break;
		}
		if (count < known && pcs[count] != ip)
			return -ESTALE;
		pcs[count] = ip;
		more = next_frame(place, &sp, &end, flags);
		if (ends)
			ends[count] = end;
		count++;
	} while (more);
	return count;
}

int gm_libunwind_walk(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends,
		      int max, int known, unsigned int *ret_flags)
{
	struct place *place = take_place(atomic_load_explicit(&published, memory_order_acquire));
	unsigned int flags = 0;
	int count, kept = errno;

	if (!place)
		return -EBUSY;
	begin(place, from);
	count = walk(place, ret_pcs, ret_ends, max, known, &flags);
	atomic_store_explicit(&place->busy, 0, memory_order_release);
	if (ret_flags)
		*ret_flags = flags;
	errno = kept;
	return count;
}

bool gm_libunwind_ready(void)
{
	return atomic_load_explicit(&published, memory_order_acquire) != NULL;
}

void gm_libunwind_flush(void)
{
	atomic_fetch_add_explicit(&generation, 1, memory_order_acq_rel);
}

void gm_libunwind_forget(void)
{
	for (unsigned int i = 0; gm_libunwind_ready() && i < PLACES; i++)
		if (atomic_load_explicit(&places[i].busy, memory_order_relaxed))
			atomic_store_explicit(&published, NULL, memory_order_relaxed);
}

/* ---- opening ----------------------------------------------------------------------------------- */

#define KNOWN_DEPTH 4

struct known { uintptr_t callers[KNOWN_DEPTH + 1]; int found; };

/* A stack whose return addresses are known, walked at its bottom: are they what is found? */
static __attribute__((noinline)) void descend(struct known *known, int depth)
{
	uintptr_t pcs[KNOWN_DEPTH + 2];
	struct gm_regs regs;
	int count;

	known->callers[depth] = (uintptr_t)__builtin_return_address(0);
	if (depth < KNOWN_DEPTH) {
		descend(known, depth + 1);
		__asm__ volatile("" ::: "memory");	/* no tail call: each has a frame */
		return;
	}
	gm_regs_capture(&regs);
	begin(&places[0], &regs);
	count = walk(&places[0], pcs, NULL, KNOWN_DEPTH + 2, 0, &(unsigned int){ 0 });
	for (known->found = 0; known->found < KNOWN_DEPTH; known->found++)
		if (known->found + 1 >= count ||
		    pcs[known->found + 1] != known->callers[KNOWN_DEPTH - known->found])
			break;
}

/* unw_dyn_info_t grew a member before its union in 1.6; UNW_REG_IP of aarch64 was x30 first. */
static bool find_version(void)
{
	static const unsigned int tables[] = { 7, 6 };
	static const int registers[] = { GM_REG_PC, 30 };

	for (unsigned int i = 0; i < 4; i++) {
		struct known known = { .found = 0 };

		unw.table_at = tables[i % 2];
		unw.ip_register = registers[i / 2];
		if (i >= 2 && GM_REG_COUNT != 33)
			break;
		unw.flush_cache(places[0].space, 0, 0);
		descend(&known, 0);
		if (known.found == KNOWN_DEPTH)
			return true;
	}
	return false;
}

static bool find_functions(void *library)
{
	const struct { const char *name; void *at; } functions[] = {
		{ PREFIX "create_addr_space", &unw.create_addr_space },
		{ PREFIX "set_caching_policy", &unw.set_caching_policy },
		{ PREFIX "flush_cache", &unw.flush_cache },
		{ PREFIX "init_remote", &unw.init_remote },
		{ PREFIX "step", &unw.step },
		{ PREFIX "get_reg", &unw.get_reg },
		{ PREFIX "is_signal_frame", &unw.is_signal_frame },
		{ PREFIX "dwarf_search_unwind_table", &unw.search_table },
	};

	for (unsigned int i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function)
			return false;
		memcpy(functions[i].at, &function, sizeof(function));
	}
	return true;
}

int gm_libunwind_open(void)
{
	static _Atomic(void *) memory;
	void *library;

	if (tried)
		return -EALREADY;
	tried = true;
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!library || !find_functions(library)) {
		dlerror();		/* not for the program to find */
		return library ? -ENOTSUP : -ENOENT;
	}
	places = gm_table_once(&memory, PLACES * sizeof(*places));
	if (!places)
		return -ENOMEM;
	for (unsigned int i = 0; i < PLACES; i++) {
		places[i].space = unw.create_addr_space(&accessors, 0);
		if (!places[i].space)
			return -ENOMEM;
		unw.set_caching_policy(places[i].space, UNW_CACHE_GLOBAL);
	}
	if (!find_version())
		return -ENOTSUP;
	atomic_store_explicit(&published, places, memory_order_release);
	return 0;
}
