/*
 * unseen.c - work that no hook may see (see order.h).
 *
 * Private tables: cuGetExportTable hands out tables of functions by a UUID. The tables that every copy of the runtime
 * asks for submit no work by themselves, because what the runtime launches goes through the public names. Nothing
 * is known of other tables.
 *
 * Objects that call the driver past us: they were loaded with RTLD_DEEPBIND, or this library was not preloaded but
 * loaded later. The relocated slots of an object show where its calls go: such an object has the C library's dlsym
 * instead of ours, or a function of the driver instead of a hook. Not found: slots that are bound lazily, until they
 * are bound, and pointers that were copied before this library was loaded.
 *
 * Thread context: any. The check of slots: inside a hook, no lock held (the loader's is taken).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "preload/order/order.h"
#include "preload/process/say.h"

static _Atomic(bool) unseen;
static const char *reason;		/* still to be printed; NULL: none */
static struct gm_reuse *reused;		/* NULL: not started */

static void say_reason(void)
{
	const char *why = __atomic_exchange_n(&reason, NULL, __ATOMIC_RELAXED);

	if (why && gm_state.options.verbose)
		gm_say_always("single-stream fast path off: ", why);
}

/* Unseen work may be in any context, and touch any memory. */
static void end_single(struct gm_reuse *reuse)
{
	gm_reuse_end_single(reuse);
	gm_timeline_everybody(gm_reuse_time(reuse));
}

bool gm_unseen(void)
{
	return unseen;
}

void gm_unseen_work(const char *why)
{
	if (!unseen)
		reason = why;
	unseen = true;
	gm_context_doubt();
	if (reused)
		end_single(reused);
	if (gm_state_is_mine())
		say_reason();
}

void gm_unseen_start(struct gm_reuse *reuse)
{
	reused = reuse;
	gm_unseen_check_slow();
	if (!unseen)
		return;
	say_reason();
	end_single(reuse);
}

/* ---- private tables ---- */

static const struct table {
	unsigned char uuid[16];
	const char *what;
} known[] = {
	{ "\xf8\xcf\xf9\x51\x21\x46\x8b\x4e\xb9\xe2\xfb\x46\x9e\x7c\x0d\xd9", "runtime, at start" },
	{ "\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9", "runtime" },
	{ "\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66", "tools, runtime calls" },
	{ "\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc", "tools, threads" },
	{ "\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93", "storage of contexts" },
	{ "\x0c\xa5\x0b\x8c\x10\x04\x92\x9a\x89\xa7\xd0\xdf\x10\xe7\x72\x86", "makes contexts" },
	{ "\x19\x5b\xcb\xf4\xd6\x7d\x02\x4a\xac\xc5\x1d\x29\xce\xa6\x31\xae", "host memory of tools" },
	{ "\xb1\x05\x41\xe1\xf7\xc7\xc7\x4a\x9f\x64\xf2\x23\xbe\x99\xf1\xe2", "devices, runtime" },
	{ "\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2", "checks, at start" },
	{ "\x26\x3e\x88\x60\x7c\xd2\x61\x43\x92\xf6\xbb\xd5\x00\x6d\xfa\x7e", "checks, at start" },
	/* Libraries of CUDA 13 ask for these. The hooks still see all that these libraries launch
	 * (test/gpu/gpu_launches.py counts: 311 of 311 on an H200). */
	{ "\x21\x31\x8c\x60\x97\x14\x32\x48\x8c\xa6\x41\xff\x73\x24\xc8\xf2", "cuBLASLt" },
	{ "\x17\x34\xdc\x26\x80\x0d\x47\x45\x87\x26\xc0\xf1\xe7\xdd\x8b\xca", "cuBLASLt" },
	{ "\xda\x91\x51\xd3\x3a\xe6\xcc\x41\xa5\xc0\x4f\x26\xd5\x33\xe3\x28", "NVRTC" },
	{ "\x69\xa2\x8e\x9f\x24\x49\x8b\x47\xb0\x30\xc5\xda\x33\x0e\xa4\xe9",
	  "something that PyTorch and JAX load" },
	{ "\x6e\x16\x3f\xbe\xb9\x58\x44\x4d\x83\x5c\xe1\x82\xaf\xf1\x99\x1e", "cuFFT" },
};

static bool is_known(const CUuuid *id)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (memcmp(id->bytes, known[i].uuid, sizeof(known[i].uuid)) == 0)
			return true;
	return false;
}

static void format_uuid(const CUuuid *id, char text[37])
{
	static const char digits[] = "0123456789abcdef";
	char *at = text;

	for (unsigned int i = 0; i < 16; i++) {
		unsigned char byte = (unsigned char)id->bytes[i];

		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[byte >> 4];
		*at++ = digits[byte & 15];
	}
	*at = '\0';
}

#define UNKNOWN_TABLE "a private table of the driver that is not known: "
static char unknown_reason[sizeof(UNKNOWN_TABLE) + 37] = UNKNOWN_TABLE;

/* If the library has not started, its options are not read: then only the reason is kept, to be printed later. */
static void unknown_table(const CUuuid *id, const void *caller)
{
	char text[37];
	Dl_info info;

	format_uuid(id, text);
	if (gm_state_is_mine() && gm_state.options.verbose)
		gm_say_always("unknown private table of the driver ", text, ", asked for by ",
			      dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "?");
	if (!unseen)
		memcpy(unknown_reason + strlen(UNKNOWN_TABLE), text, sizeof(text));
	gm_unseen_work(unknown_reason);
}

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	CUresult result = GM_REAL(cuGetExportTable)(ppExportTable, pExportTableId);

	if (!result && pExportTableId && !is_known(pExportTableId))
		unknown_table(pExportTableId, __builtin_return_address(0));
	return result;
}

/* ---- objects that call the driver past us ---- */

#define CHECKS_AGAIN 16u			/* most repeated checks because of slots that are not bound yet */

static _Atomic(uint64_t) objects_seen;		/* dlpi_adds of the last check */
static _Atomic(unsigned int) checked_again;

struct found { bool past, unbound; };

struct object {
	const ElfW(Rela) *relocations[2];
	size_t counts[2];
	const ElfW(Sym) *symbols;
	const char *strings;
};

/* glibc replaces the offsets in the dynamic section by addresses, but not in every object. */
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

/* Does the function @name lead to the driver? */
static bool leads_to_driver(const char *name)
{
	return strcmp(name, "dlsym") == 0 ||
	       (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z');
}

/* Does the slot of @name hold the real function instead of ours? */
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

/* A slot that points into its own object is bound lazily, and was not called yet. */
static void check_slots(const struct dl_phdr_info *info, const struct object *object,
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
			if (!leads_to_driver(name))
				continue;
			bound = *(const void *const *)(info->dlpi_addr + r[i].r_offset);
			found->past |= goes_past(name, bound);
			found->unbound |= part == 1 && has_address(info, bound);
		}
	}
}

/* Skip our own object, the C library and the driver: their slots are right as they are. */
static int check_object(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	const ElfW(Dyn) *dynamic = NULL;
	struct found *found = arg;
	struct object object;

	(void)bytes;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (!dynamic || has_address(info, (const void *)check_object) ||
	    has_address(info, (const void *)gm_libc.dlsym) ||
	    has_address(info, (const void *)GM_REAL(cuGetProcAddress)) ||
	    !read_dynamic(info, dynamic, &object))
		return 0;
	check_slots(info, &object, found);
	return found->past;
}

static int count(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	(void)bytes;
	*(uint64_t *)arg = info->dlpi_adds;
	return 1;
}

/* Does this library come before the driver in the search order? Then everybody finds a name that both define here. */
static bool stands_before(void)
{
	return gm_libc.dlsym && gm_libc.dlsym(RTLD_DEFAULT, "cuLaunchKernel") ==
				(void *)cuLaunchKernel;
}

void gm_unseen_check_slow(void)
{
	struct found found = { false, false };
	uint64_t objects = 0;

	gm_name_resolved = false;
	dl_iterate_phdr(count, &objects);
	if (objects == objects_seen)
		return;
	dl_iterate_phdr(check_object, &found);
	objects_seen = found.unbound && ++checked_again < CHECKS_AGAIN ? 0 : objects;
	if (found.past)
		gm_unseen_work("an object of this process is bound past this library "
				     "(RTLD_DEEPBIND)");
	else if (!stands_before())
		gm_unseen_work("this library is not preloaded before the driver");
}
