/*
 * order_bypass.c - objects that reach the driver past us: bound by RTLD_DEEPBIND, or because we are
 * not where a preloaded library is.
 *
 * What an object is bound to lies in its relocated slots: there one sees the C library's dlsym
 * where ours is expected, or a function of the driver's where a hook is. Looked at when the order
 * of work begins to count, and again after the host has looked a name up (that is how what was
 * loaded with RTLD_DEEPBIND is found, too). Not seen: slots that are bound lazily, until they are;
 * and pointers that were copied before this library was there.
 *
 * Thread context: any, inside a hook, no lock held (the loader's is taken). Signal context: none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "preload/order/order.h"
#include "preload/driver/real.h"

_Atomic(bool) gm_order_name_resolved;

#define LOOKS_AGAIN 16u			/* at slots that are not bound yet */

static _Atomic(uint64_t) objects_seen;		/* dlpi_adds of the last look */
static _Atomic(unsigned int) looked_again;

struct found { bool past, unbound; };

struct object {
	const ElfW(Rela) *relocations[2];
	size_t counts[2];
	const ElfW(Sym) *symbols;
	const char *strings;
};

/* glibc relocates the dynamic section's addresses in place, but not everywhere. */
static const void *address_in(const struct dl_phdr_info *info, ElfW(Addr) value)
{
	return (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

static bool read_dynamic(const struct dl_phdr_info *info, const ElfW(Dyn) *d, struct object *object)
{
	memset(object, 0, sizeof(*object));
	for (; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			object->symbols = address_in(info, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			object->strings = address_in(info, d->d_un.d_ptr);
			break;
		case DT_RELA:
			object->relocations[0] = address_in(info, d->d_un.d_ptr);
			break;
		case DT_RELASZ:
			object->counts[0] = d->d_un.d_val / sizeof(ElfW(Rela));
			break;
		case DT_JMPREL:
			object->relocations[1] = address_in(info, d->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			object->counts[1] = d->d_un.d_val / sizeof(ElfW(Rela));
			break;
		default:
			break;
		}
	}
	return object->symbols && object->strings;
}

/* Does @name lead to the driver? */
static bool is_a_way(const char *name)
{
	return strcmp(name, "dlsym") == 0 ||
	       (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z');
}

/* Is the slot of @name bound past us? */
static bool goes_past(const char *name, const void *bound)
{
	return *name == 'd' ? bound == (const void *)gm_libc.dlsym : gm_hook_for(bound) != NULL;
}

static bool has_address(const struct dl_phdr_info *info, const void *address)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		if (info->dlpi_phdr[i].p_type == PT_LOAD && (uintptr_t)address >= start &&
		    (uintptr_t)address < start + info->dlpi_phdr[i].p_memsz)
			return true;
	}
	return false;
}

/* A slot that leads into its own object is bound lazily, and has not been called through. */
static void look_at_slots(const struct dl_phdr_info *info, const struct object *object,
			  struct found *found)
{
	for (int part = 0; part < 2; part++) {
		const ElfW(Rela) *r = object->relocations[part];

		for (size_t i = 0; r && i < object->counts[part]; i++) {
			size_t symbol = ELF64_R_SYM(r[i].r_info);
			const void *bound;
			const char *name;

			if (!symbol || r[i].r_addend)
				continue;
			name = object->strings + object->symbols[symbol].st_name;
			if (!is_a_way(name))
				continue;
			bound = *(const void *const *)(info->dlpi_addr + r[i].r_offset);
			found->past |= goes_past(name, bound);
			found->unbound |= part == 1 && has_address(info, bound);
		}
	}
}

/* Our own objects' slots, the C library's and the driver's are what they should be. */
static int look_at(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	const ElfW(Dyn) *dynamic = NULL;
	struct found *found = arg;
	struct object object;

	(void)bytes;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (!dynamic || has_address(info, (const void *)look_at) ||
	    has_address(info, (const void *)gm_libc.dlsym) ||
	    has_address(info, (const void *)GM_REAL(cuGetProcAddress)) ||
	    !read_dynamic(info, dynamic, &object))
		return 0;
	look_at_slots(info, &object, found);
	return found->past;
}

static int count(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	(void)bytes;
	*(uint64_t *)arg = info->dlpi_adds;
	return 1;
}

/* A name that everybody finds in us, if we stand before the driver. */
static bool stands_before(void)
{
	return gm_libc.dlsym && gm_libc.dlsym(RTLD_DEFAULT, "cuLaunchKernel") ==
				(void *)cuLaunchKernel;
}

void gm_order_check_bindings_slow(void)
{
	struct found found = { false, false };
	uint64_t objects = 0;

	gm_order_name_resolved = false;
	dl_iterate_phdr(count, &objects);
	if (objects == objects_seen)
		return;
	dl_iterate_phdr(look_at, &found);
	objects_seen = found.unbound && ++looked_again < LOOKS_AGAIN ? 0 : objects;
	if (found.past)
		gm_order_unseen_work("an object of this process is bound past this library "
				     "(RTLD_DEEPBIND)");
	else if (!stands_before())
		gm_order_unseen_work("this library is not preloaded before the driver");
}
