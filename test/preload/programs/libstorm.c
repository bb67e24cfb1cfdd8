/*
 * libstorm.c - a library that allocates in its constructor, in a call, and in its destructor, where
 * it frees all of that; loaded and unloaded over and over by storm.cc, under several names.
 *
 * Thread context: constructor and destructor run under the loader's lock, storm_work anywhere.
 */
#include "test/preload/programs/storm.h"

static uint64_t kept[3];

static void take(uint64_t *address, size_t bytes)
{
	int failed = storm.alloc(address, bytes);

	__atomic_add_fetch(failed ? &storm.errors : &storm.allocations, 1, __ATOMIC_RELAXED);
}

static void give_back(uint64_t *address)
{
	int failed = storm.free(*address);

	__atomic_add_fetch(failed ? &storm.errors : &storm.frees, 1, __ATOMIC_RELAXED);
	*address = 0;
}

static __attribute__((constructor)) void begin(void)
{
	take(&kept[0], 4096);
}

static __attribute__((destructor)) void end(void)
{
	take(&kept[2], 1 << 16);
	for (int i = 0; i < 3; i++) {
		if (kept[i])
			give_back(&kept[i]);
	}
}

__attribute__((visibility("default"))) void storm_work(int turns);
void storm_work(int turns)
{
	for (int i = 0; i < turns; i++) {
		if (kept[1])
			give_back(&kept[1]);
		take(&kept[1], (size_t)512 << (i % 8));
	}
}
