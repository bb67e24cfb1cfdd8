/*
 * object.h - find the loaded object (executable, library, vDSO) that holds an address.
 *
 * glibc 2.35 or later finds it by _dl_find_object: no lock, a few nanoseconds. With an older C library
 * /proc/self/maps is read. The objects found there are remembered until the next gm_object_flush. After a
 * search that found no object, the file is not read again for 10 ms.
 *
 * Any thread, any signal context. No lock, no malloc, errno kept.
 */
#ifndef GM_RECORDER_OBJECT_H
#define GM_RECORDER_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

struct gm_object {
	uintptr_t start, end;		/* mapped range */
	uintptr_t eh_frame_hdr;		/* address of .eh_frame_hdr, 0: none */
	uintptr_t link_map;		/* the loader's record of the object; 0: not known */
};

/* Find the object that holds @pc. Returns false when none does. */
bool gm_object_find(uintptr_t pc, struct gm_object *ret_object);

/* Is gm_object_find cheap and always in agreement with the loader? True with _dl_find_object. */
bool gm_object_is_exact(void);

/* Forget the objects of /proc/self/maps, because objects may have changed. */
void gm_object_flush(void);

struct gm_object_identity {
	uintptr_t base;			/* load bias */
	uint64_t hash;			/* of these members and the object's end; never 0 */
	uint8_t build_id[32];
	unsigned int build_id_bytes;
	char name[1024];		/* the loader's name: "" for the executable */
};

/* Read (with gm_probe_copy) what distinguishes @object from another object at the same place. Returns false
 * when its headers cannot be read. */
bool gm_object_identify(const struct gm_object *object, struct gm_object_identity *ret_identity);

/* Read the program headers of the ELF image that is mapped at @start, with gm_probe_copy. All addresses
 * except @base are those in the file. Returns false when there is no image. */
#define GM_ELF_NOTES 4
struct gm_elf {
	uintptr_t base;			/* load bias */
	uintptr_t end, eh_frame_hdr, dynamic;	/* the latter two may be 0: none */
	struct gm_elf_notes { uintptr_t at, bytes; } notes[GM_ELF_NOTES];
	unsigned int notes_count;
};
bool gm_elf_read(uintptr_t start, struct gm_elf *ret_elf);

/* For tests: behave as with an older C library. */
void gm_object_force_maps(bool on);

#endif
