/*
 * object.c - find the loaded object that holds an address, and its identity (object.h).
 *
 * Owns the choice between the loader's look-up and /proc/self/maps, which is made when the library is loaded.
 * For /proc/self/maps it owns a small table of the objects found. Each slot has a sequence word: a writer skips
 * a slot that another writer is changing, and a reader treats it as empty. A file descriptor is never open
 * longer than one call. Any context.
 */
#define _GNU_SOURCE			/* dlvsym */
#include "recorder/modules/object.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "recorder/journal/probe.h"
#include "recorder/modules/elf_file.h"

#define PHDRS_MAX 64
#define NOTES_BYTES 1024		/* how much of a segment of notes is read */
#define SLOTS 256u
#define MISS_PAUSE_NS UINT64_C(10000000)

/* glibc's struct dl_find_object, part of its ABI since 2.35. Declared here, so that older headers suffice. */
struct found_object {
	unsigned long long flags;
	void *map_start, *map_end;
	struct link_map *link_map;
	void *eh_frame;
	unsigned long long reserved[9];
};

/* ---- an ELF image in memory --------------------------------------------------------------------- */

bool gm_elf_read(uintptr_t start, struct gm_elf *ret_elf)
{
	ElfW(Ehdr) head;
	bool have_base = false;

	memset(ret_elf, 0, sizeof(*ret_elf));
	if (gm_probe_copy(&head, start, sizeof(head)) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
	    head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(ElfW(Phdr)) ||
	    head.e_phnum > PHDRS_MAX)
		return false;
	for (unsigned int i = 0; i < head.e_phnum; i++) {
		uintptr_t at = start + head.e_phoff + i * sizeof(ElfW(Phdr));
		ElfW(Phdr) phdr;

		if (gm_probe_copy(&phdr, at, sizeof(phdr)) != sizeof(phdr))
			return false;
		if (phdr.p_type == PT_LOAD && !have_base) {
			ret_elf->base = start - (phdr.p_vaddr & ~(ElfW(Addr))4095);
			have_base = true;
		}
		if (phdr.p_type == PT_LOAD && phdr.p_vaddr + phdr.p_memsz > ret_elf->end)
			ret_elf->end = phdr.p_vaddr + phdr.p_memsz;
		else if (phdr.p_type == PT_GNU_EH_FRAME)
			ret_elf->eh_frame_hdr = phdr.p_vaddr;
		else if (phdr.p_type == PT_DYNAMIC)
			ret_elf->dynamic = phdr.p_vaddr;
		else if (phdr.p_type == PT_NOTE && ret_elf->notes_count < GM_ELF_NOTES)
			ret_elf->notes[ret_elf->notes_count++] = (struct gm_elf_notes){
				phdr.p_vaddr, phdr.p_memsz };
	}
	return have_base;
}

/* Convert an address of the file to an address in memory; 0 stays 0. */
static uintptr_t biased(const struct gm_elf *elf, uintptr_t value)
{
	return value ? elf->base + value : 0;
}

/* ---- through /proc/self/maps -------------------------------------------------------------------- */

struct slot {
	_Atomic(uint32_t) sequence;	/* odd: the slot is being written */
	_Atomic(uint32_t) generation;	/* flushes when it was written; 0: empty */
	_Atomic(uintptr_t) start, end, eh_frame_hdr;
};

static struct slot slots[SLOTS];
static _Atomic(uint32_t) generation = 1;
static _Atomic(uint32_t) next_slot;
static _Atomic(uint64_t) last_miss_ns;

/* The fields that we use of a line of the file. */
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

/* Parse the next line: "start-end perms offset dev inode   path". */
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

static bool copy_object(uintptr_t start, struct gm_object *object)
{
	struct gm_elf elf;

	if (!gm_elf_read(start, &elf))
		return false;
	*object = (struct gm_object){ .start = start, .end = biased(&elf, elf.end),
				      .eh_frame_hdr = biased(&elf, elf.eh_frame_hdr) };
	return true;
}

/* Find the image whose mappings hold @pc. One image may map page 0 of its file twice (when a short file's data lie
 * on that page, too), and two images of one file may follow one another (dlmopen). So take the last run of such
 * mappings of one file, and in it the first mapping whose program headers cover @pc. */
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
	/* Release stores, so that no reader sees one of them before the odd sequence. */
	atomic_store_explicit(&slot->generation, now, memory_order_release);
	atomic_store_explicit(&slot->start, object->start, memory_order_release);
	atomic_store_explicit(&slot->end, object->end, memory_order_release);
	atomic_store_explicit(&slot->eh_frame_hdr, object->eh_frame_hdr, memory_order_release);
	atomic_store_explicit(&slot->sequence, sequence + 2, memory_order_release);
}

static bool maps_find(uintptr_t pc, struct gm_object *ret_object)
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

void gm_object_flush(void)
{
	if (atomic_fetch_add_explicit(&generation, 1, memory_order_acq_rel) == UINT32_MAX)
		atomic_fetch_add_explicit(&generation, 1, memory_order_acq_rel); /* skip 0, which means empty */
	atomic_store_explicit(&last_miss_ns, 0, memory_order_relaxed);
}

/* Return the path of the mapping that begins at @start; "": none. */
static void maps_name(uintptr_t start, char *ret_name, size_t bytes)
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

/* ---- which object -------------------------------------------------------------------------------- */

static int (*loader_find)(void *address, struct found_object *result);

/* Look _dl_find_object up instead of linking it, because even a weak reference to a versioned symbol prevents a
 * library from being loaded when the C library lacks that version. Do it as early as possible, because a hook might
 * wait for the loader's lock later. Use dlvsym, because dlsym may be this library's own. */
static __attribute__((constructor)) void find_loader(void)
{
	*(void **)&loader_find = dlvsym(RTLD_DEFAULT, "_dl_find_object", "GLIBC_2.35");
	if (!loader_find)
		dlerror();		/* clear the error, so that the program does not find it */
}

static _Atomic(bool) force_maps;

bool gm_object_is_exact(void)
{
	return loader_find && !atomic_load_explicit(&force_maps, memory_order_relaxed);
}

void gm_object_force_maps(bool on)
{
	atomic_store_explicit(&force_maps, on, memory_order_relaxed);
	gm_object_flush();
}

bool gm_object_find(uintptr_t pc, struct gm_object *ret_object)
{
	struct found_object found;

	if (!gm_object_is_exact())
		return maps_find(pc, ret_object);
	if (loader_find((void *)pc, &found) != 0)
		return false;
	ret_object->start = (uintptr_t)found.map_start;
	ret_object->end = (uintptr_t)found.map_end;
	ret_object->eh_frame_hdr = (uintptr_t)found.eh_frame;
	ret_object->link_map = (uintptr_t)found.link_map;
	return true;
}

/* ---- the identity of an object ------------------------------------------------------------------- */

/* Copy the name with a NUL. Of a name that is too long keep the end, which has the file's name. */
static void copy_name(uintptr_t at, char *dst, size_t bytes)
{
	size_t length = 0;

	dst[0] = 0;
	for (;;) {
		char part[128];
		size_t got = gm_probe_copy(part, at, sizeof(part));
		size_t n = strnlen(part, got);

		if (length + n >= bytes) {
			size_t keep = bytes - 1 - n;

			memmove(dst, dst + length - keep, keep);
			length = keep;
		}
		memcpy(dst + length, part, n);
		length += n;
		dst[length] = 0;
		if (n < sizeof(part))
			return;
		at += n;
	}
}

static uint64_t hash_of(const struct gm_object *object, const struct gm_object_identity *id)
{
	uint64_t hash = 0xcbf29ce484222325u ^ id->base ^ object->end << 1;

	for (const char *name = id->name; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
	for (unsigned int i = 0; i < id->build_id_bytes; i++)
		hash = (hash ^ id->build_id[i]) * 0x100000001b3u;
	return hash | 1;
}

static void find_build_id(const struct gm_object *object, const struct gm_elf *elf,
			  struct gm_object_identity *identity)
{
	uint8_t notes[NOTES_BYTES];

	for (unsigned int i = 0; i < elf->notes_count && !identity->build_id_bytes; i++) {
		uintptr_t at = elf->base + elf->notes[i].at, bytes = elf->notes[i].bytes;

		if (at < object->start || at > object->end || bytes > object->end - at)
			continue;
		bytes = gm_probe_copy(notes, at, bytes < sizeof(notes) ? bytes : sizeof(notes));
		identity->build_id_bytes = gm_elf_build_id(notes, bytes, identity->build_id);
	}
}

bool gm_object_identify(const struct gm_object *object, struct gm_object_identity *ret_identity)
{
	struct link_map map = { 0 };
	struct gm_elf elf;
	bool is_elf = gm_elf_read(object->start, &elf);

	memset(ret_identity, 0, offsetof(struct gm_object_identity, name) + 1);
	ret_identity->base = elf.base;
	if (object->link_map) {
		size_t head = offsetof(struct link_map, l_ld);

		if (gm_probe_copy(&map, object->link_map, head) != head)
			return false;
		ret_identity->base = map.l_addr;
		copy_name((uintptr_t)map.l_name, ret_identity->name, sizeof(ret_identity->name));
	} else {
		maps_name(object->start, ret_identity->name, sizeof(ret_identity->name));
	}
	if (is_elf)
		find_build_id(object, &elf, ret_identity);
	ret_identity->hash = hash_of(object, ret_identity);
	return is_elf || object->link_map;
}
