/*
 * traits.c - what is known of the modules that ask for memory (see traits.h).
 *
 * Each row has its reason. A wrong row can make a program read too early, so the list is short.
 */
#include <stddef.h>
#include <string.h>

#include "preload/cache/traits.h"

enum { FREES_FREELY = 1 };

static const struct { const char *start; uint8_t traits; } known[] = {
	/* PyTorch's allocator (c10::cuda): frees its segments after it has waited for their events
	 * itself, and gives no promise of synchronisation to the code above it. */
	{ "libc10_cuda.so", FREES_FREELY },
};

static uint8_t traits_of[UINT16_MAX + 1];

void gm_traits_seen(uint16_t module, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(name, known[i].start, strlen(known[i].start)))
			__atomic_store_n(&traits_of[module], known[i].traits, __ATOMIC_RELAXED);
}

bool gm_traits_frees_freely(uint16_t module)
{
	return __atomic_load_n(&traits_of[module], __ATOMIC_RELAXED) & FREES_FREELY;
}
