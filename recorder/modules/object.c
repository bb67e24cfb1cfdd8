/*
 * object.c - the loaded object that holds an address, and what tells it from others (object.h).
 *
 * Owns the choice between the loader's own look-up and /proc/self/maps, made as the library is
 * loaded. Any context.
 */
#define _GNU_SOURCE			/* dlvsym */
#include "recorder/modules/object.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "recorder/modules/object_maps.h"
#include "recorder/journal/probe.h"

/* glibc's struct dl_find_object, an ABI since 2.35; here, so that an older libc's headers do. */
struct found_object {
	unsigned long long flags;
	void *map_start, *map_end;
	struct link_map *link_map;
	void *eh_frame;
	unsigned long long reserved[9];
};

#define NOTES_MAX 32			/* of one segment; there are two or three */

static int (*loader_find)(void *address, struct found_object *result);

/* Looked up, not linked: even a weak reference to a versioned symbol keeps a library from being
 * loaded where the C library lacks the version. And as early as can be: later, a hook might wait
 * for the loader's lock. dlvsym, since dlsym may be this library's own. */
static __attribute__((constructor)) void find_loader(void)
{
	*(void **)&loader_find = dlvsym(RTLD_DEFAULT, "_dl_find_object", "GLIBC_2.35");
	if (!loader_find)
		dlerror();		/* not for the program to find */
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
		return gm_maps_find(pc, ret_object);
	if (loader_find((void *)pc, &found) != 0)
		return false;
	ret_object->start = (uintptr_t)found.map_start;
	ret_object->end = (uintptr_t)found.map_end;
	ret_object->eh_frame_hdr = (uintptr_t)found.eh_frame;
	ret_object->link_map = (uintptr_t)found.link_map;
	return true;
}

void gm_object_flush(void)
{
	gm_maps_flush();
}

/* ELF notes are 4-byte aligned records: sizes, type, name, descriptor. */
static void find_build_id(uintptr_t at, uintptr_t end, struct gm_object_identity *identity)
{
	for (int i = 0; i < NOTES_MAX && at + sizeof(ElfW(Nhdr)) <= end; i++) {
		ElfW(Nhdr) note;
		uintptr_t desc;
		char name[4];

		if (gm_probe_copy(&note, at, sizeof(note)) != sizeof(note) ||
		    note.n_namesz > 4096 || note.n_descsz > 65536)
			return;
		desc = at + sizeof(note) + ((note.n_namesz + 3u) & ~3u);
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    note.n_descsz >= 1 && note.n_descsz <= sizeof(identity->build_id) &&
		    desc + note.n_descsz <= end &&
		    gm_probe_copy(name, at + sizeof(note), 4) == 4 && !memcmp(name, "GNU", 4) &&
		    gm_probe_copy(identity->build_id, desc, note.n_descsz) == note.n_descsz) {
			identity->build_id_bytes = note.n_descsz;
			return;
		}
		at = desc + ((note.n_descsz + 3u) & ~3u);
	}
}

bool gm_elf_read(uintptr_t start, struct gm_elf *ret_elf)
{
	ElfW(Ehdr) head;

	memset(ret_elf, 0, sizeof(*ret_elf));
	if (gm_probe_copy(&head, start, sizeof(head)) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
	    head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(ElfW(Phdr)) ||
	    head.e_phnum > GM_ELF_PHDRS_MAX)
		return false;
	ret_elf->phdrs = start + head.e_phoff;
	ret_elf->phdr_count = head.e_phnum;
	return true;
}

bool gm_elf_phdr(const struct gm_elf *elf, unsigned int i, ElfW(Phdr) *ret_phdr)
{
	return gm_probe_copy(ret_phdr, elf->phdrs + i * sizeof(*ret_phdr), sizeof(*ret_phdr)) ==
	       sizeof(*ret_phdr);
}

/* The name as a NUL-terminated copy; of a longer one the end, which has the file's name. */
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

static uint64_t hash_name(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
	return hash;
}

bool gm_object_identify(const struct gm_object *object, struct gm_object_identity *ret_identity)
{
	struct link_map map = { 0 };
	struct gm_elf elf;
	bool have_base = false;

	memset(ret_identity, 0, offsetof(struct gm_object_identity, name) + 1);
	if (object->link_map) {
		size_t head = offsetof(struct link_map, l_ld);

		if (gm_probe_copy(&map, object->link_map, head) != head)
			return false;
		ret_identity->base = map.l_addr;
		have_base = true;
		copy_name((uintptr_t)map.l_name, ret_identity->name, sizeof(ret_identity->name));
	} else {
		gm_maps_name(object->start, ret_identity->name, sizeof(ret_identity->name));
	}
	ret_identity->name_hash = hash_name(ret_identity->name);
	if (!gm_elf_read(object->start, &elf))
		return have_base;
	for (unsigned int i = 0; i < elf.phdr_count; i++) {
		ElfW(Phdr) phdr;
		uintptr_t at;

		if (!gm_elf_phdr(&elf, i, &phdr))
			break;
		if (phdr.p_type == PT_LOAD && !have_base) {
			ret_identity->base = object->start - (phdr.p_vaddr & ~(ElfW(Addr))4095);
			have_base = true;
		}
		at = ret_identity->base + phdr.p_vaddr;
		if (phdr.p_type == PT_NOTE && have_base && !ret_identity->build_id_bytes &&
		    at >= object->start && at <= object->end && phdr.p_memsz <= object->end - at)
			find_build_id(at, at + phdr.p_memsz, ret_identity);
	}
	return have_base;
}
