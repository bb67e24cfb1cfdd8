/*
 * object_maps.c - objects found through /proc/self/maps (see object_maps.h).
 *
 * Owns a small table of the objects found, each slot under its own sequence word: a writer that
 * finds a slot busy leaves it, a reader that finds one changing takes it as not there. A file
 * descriptor is open only inside one call. Any context.
 */
#include "recorder/modules/object_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "recorder/journal/probe.h"

#define SLOTS 256u
#define MISS_PAUSE_NS UINT64_C(10000000)

struct slot {
	_Atomic(uint32_t) sequence;	/* odd: being written */
	_Atomic(uint32_t) generation;	/* as of the flushes; 0: empty */
	_Atomic(uintptr_t) start, end, eh_frame_hdr;
};

static struct slot slots[SLOTS];
static _Atomic(uint32_t) generation = 1;
static _Atomic(uint32_t) next_slot;
static _Atomic(uint64_t) last_miss_ns;

/* One line of the file: what is used of it. */
struct line {
	uintptr_t start, end, offset;
	uint64_t inode;
	char path[1024];
	size_t path_length;
};

struct reader {
	int fd;
	size_t at, filled;
	char buffer[512];
};

static int next_char(struct reader *reader)
{
	if (reader->at == reader->filled) {
		long got;

		do {
			got = gm_syscall(SYS_read, reader->fd, (long)reader->buffer,
					 sizeof(reader->buffer), 0, 0, 0);
		} while (got == -EINTR);
		if (got <= 0)
			return -1;
		reader->at = 0;
		reader->filled = (size_t)got;
	}
	return (unsigned char)reader->buffer[reader->at++];
}

static uint64_t number(struct reader *reader, unsigned int radix, int *ret_after)
{
	uint64_t value = 0;

	for (;;) {
		int c = next_char(reader);
		unsigned int digit;

		if (c >= '0' && c <= '9')
			digit = (unsigned int)(c - '0');
		else if (radix == 16 && c >= 'a' && c <= 'f')
			digit = (unsigned int)(c - 'a') + 10;
		else {
			*ret_after = c;
			return value;
		}
		value = value * radix + digit;
	}
}

static int skip_field(struct reader *reader)
{
	int c;

	do {
		c = next_char(reader);
	} while (c != ' ' && c != '\n' && c >= 0);
	return c;
}

/* "start-end perms offset dev inode   path" */
static bool next_line(struct reader *reader, struct line *line)
{
	int c;

	line->start = number(reader, 16, &c);
	if (c != '-')
		return false;
	line->end = number(reader, 16, &c);
	if (c != ' ' || skip_field(reader) != ' ')
		return false;
	line->offset = number(reader, 16, &c);
	if (c != ' ' || skip_field(reader) != ' ')
		return false;
	line->inode = number(reader, 10, &c);
	while (c == ' ')
		c = next_char(reader);
	line->path_length = 0;
	for (; c != '\n' && c >= 0; c = next_char(reader))
		if (line->path_length < sizeof(line->path) - 1)
			line->path[line->path_length++] = (char)c;
	line->path[line->path_length] = 0;
	return true;
}

static bool open_maps(struct reader *reader)
{
	reader->fd = (int)gm_syscall(SYS_openat, AT_FDCWD, (long)"/proc/self/maps",
				     O_RDONLY | O_CLOEXEC, 0, 0, 0);
	reader->at = reader->filled = 0;
	return reader->fd >= 0;
}

static void close_maps(struct reader *reader)
{
	gm_syscall(SYS_close, reader->fd, 0, 0, 0, 0, 0);
}

/* Range and .eh_frame_hdr from the program headers of the image at @start. */
static bool copy_object(uintptr_t start, struct gm_object *object)
{
	struct gm_elf elf;
	uintptr_t base = 0, hdr = 0;
	bool have_base = false;

	if (!gm_elf_read(start, &elf))
		return false;
	object->start = start;
	object->end = start;
	object->link_map = 0;
	for (unsigned int i = 0; i < elf.phdr_count; i++) {
		ElfW(Phdr) phdr;

		if (!gm_elf_phdr(&elf, i, &phdr))
			return false;
		if (phdr.p_type == PT_LOAD) {
			uintptr_t end;

			if (!have_base)
				base = start - (phdr.p_vaddr & ~(ElfW(Addr))4095);
			have_base = true;
			end = base + phdr.p_vaddr + phdr.p_memsz;
			if (end > object->end)
				object->end = end;
		} else if (phdr.p_type == PT_GNU_EH_FRAME) {
			hdr = phdr.p_vaddr;
		}
	}
	object->eh_frame_hdr = hdr ? base + hdr : 0;
	return have_base;
}

/* The image whose mappings hold @pc. A file's page 0 may be mapped twice by one image (a short
 * file's data lie on it too) and by two images one after the other (dlmopen): of the last run of
 * such mappings of one file, the first whose program headers cover @pc. */
static bool copy_of(uintptr_t pc, struct gm_object *ret_object)
{
	enum { HEADS = 8 };
	uintptr_t heads[HEADS];
	unsigned int count = 0;
	uint64_t inode = 0;
	struct reader reader;
	struct line line;
	bool found = false;

	if (!open_maps(&reader))
		return false;
	while (next_line(&reader, &line) && pc >= line.start) {
		bool vdso = !strcmp(line.path, "[vdso]");

		if (vdso || (line.inode && line.inode != inode))
			count = 0;
		if (vdso || line.inode)
			inode = line.inode;
		if ((vdso || (line.inode && line.offset == 0)) && count < HEADS)
			heads[count++] = line.start;
		found = pc < line.end;
	}
	close_maps(&reader);
	for (unsigned int i = 0; found && i < count; i++)
		if (copy_object(heads[i], ret_object) && pc < ret_object->end)
			return true;
	return false;
}

static bool known(uintptr_t pc, uint32_t now, struct gm_object *object)
{
	for (unsigned int i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];
		uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);

		if (atomic_load_explicit(&slot->generation, memory_order_acquire) != now)
			continue;
		object->start = atomic_load_explicit(&slot->start, memory_order_acquire);
		object->end = atomic_load_explicit(&slot->end, memory_order_acquire);
		object->eh_frame_hdr = atomic_load_explicit(&slot->eh_frame_hdr,
							    memory_order_acquire);
		object->link_map = 0;
		if (!(sequence & 1) && pc >= object->start && pc < object->end &&
		    atomic_load_explicit(&slot->sequence, memory_order_relaxed) == sequence)
			return true;
	}
	return false;
}

static void remember(const struct gm_object *object, uint32_t now)
{
	uint32_t i = atomic_fetch_add_explicit(&next_slot, 1, memory_order_relaxed) % SLOTS;
	struct slot *slot = &slots[i];
	uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_relaxed);

	if ((sequence & 1) ||
	    !atomic_compare_exchange_strong_explicit(&slot->sequence, &sequence, sequence + 1,
						     memory_order_acquire, memory_order_relaxed))
		return;
	/* release, each: none is seen before the odd sequence */
	atomic_store_explicit(&slot->generation, now, memory_order_release);
	atomic_store_explicit(&slot->start, object->start, memory_order_release);
	atomic_store_explicit(&slot->end, object->end, memory_order_release);
	atomic_store_explicit(&slot->eh_frame_hdr, object->eh_frame_hdr, memory_order_release);
	atomic_store_explicit(&slot->sequence, sequence + 2, memory_order_release);
}

bool gm_maps_find(uintptr_t pc, struct gm_object *ret_object)
{
	uint32_t now = atomic_load_explicit(&generation, memory_order_acquire);
	struct timespec ts = { 0, 0 };
	uint64_t now_ns;

	if (known(pc, now, ret_object))
		return true;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	if (now_ns - atomic_load_explicit(&last_miss_ns, memory_order_relaxed) < MISS_PAUSE_NS)
		return false;
	if (!copy_of(pc, ret_object)) {
		atomic_store_explicit(&last_miss_ns, now_ns, memory_order_relaxed);
		return false;
	}
	remember(ret_object, now);
	return true;
}

void gm_maps_flush(void)
{
	if (atomic_fetch_add_explicit(&generation, 1, memory_order_acq_rel) == UINT32_MAX)
		atomic_fetch_add_explicit(&generation, 1, memory_order_acq_rel); /* 0: empty */
	atomic_store_explicit(&last_miss_ns, 0, memory_order_relaxed);
}

void gm_maps_name(uintptr_t start, char *ret_name, size_t bytes)
{
	struct reader reader;
	struct line line;

	ret_name[0] = 0;
	if (!open_maps(&reader))
		return;
	while (next_line(&reader, &line)) {
		size_t skip;

		if (line.start != start)
			continue;
		skip = line.path_length >= bytes ? line.path_length - bytes + 1 : 0;
		memcpy(ret_name, line.path + skip, line.path_length - skip + 1);
		break;
	}
	close_maps(&reader);
}
