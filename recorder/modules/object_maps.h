/*
 * object_maps.h - objects found through /proc/self/maps, for C libraries without _dl_find_object.
 * Internal to recorder/object*.c; contexts as in object.h.
 */
#ifndef GM_RECORDER_OBJECT_MAPS_H
#define GM_RECORDER_OBJECT_MAPS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/modules/object.h"

bool gm_maps_find(uintptr_t pc, struct gm_object *ret_object);
void gm_maps_flush(void);

/* The path of the mapping that begins at @start, "" when there is none. */
void gm_maps_name(uintptr_t start, char *ret_name, size_t bytes);

/* The program headers of the ELF image mapped at @start, read with gm_probe_copy. */
#define GM_ELF_PHDRS_MAX 64
struct gm_elf {
	uintptr_t phdrs;
	unsigned int phdr_count;
};
bool gm_elf_read(uintptr_t start, struct gm_elf *ret_elf);
bool gm_elf_phdr(const struct gm_elf *elf, unsigned int i, ElfW(Phdr) *ret_phdr);

#endif
