/*
 * unwind_path.c - ways that a thread's stacks went (see unwind_path.h). Owns nothing. Empty but on
 * x86-64.
 */
#include "recorder/unwind_path.h"

#ifndef __aarch64__

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "recorder/probe.h"

struct gm_paths *gm_paths_new(void)
{
	long at = gm_syscall(SYS_mmap, 0, sizeof(struct gm_paths), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gm_paths *paths = at < 0 && at > -4096 ? NULL : (struct gm_paths *)at;

	if (!paths)
		return NULL;
	paths->frames[0].pc = UINTPTR_MAX;	/* what an empty place of the index leads to */
	return paths;
}

void gm_paths_clear(struct gm_paths *paths)
{
	memset(paths->index, 0, sizeof(paths->index));
}

uint32_t gm_path_keep(struct gm_paths *paths, const struct gm_path_frame *frames, uint32_t count,
		      uint64_t kind)
{
	uint64_t hash = gm_path_hash(frames[0].pc, frames[0].step & GM_STEP_PLACE, kind);
	uint32_t *words = paths->index[hash >> 54], at = paths->used, way = GM_PATH_WAYS;
	uint32_t tag = (uint32_t)(hash >> 32) % GM_PATH_TAGS;

	if (at + count + 1 > GM_PATH_FRAMES)
		at = 0;
	if (!at)			/* word 0 is no path */
		at = 1;
	memcpy(&paths->frames[at], frames, (count + 1) * sizeof(*frames));
	paths->frames[at + count].step &= GM_STEP_PLACE;
	paths->used = at + count + 1;
	for (uint32_t i = 0; i < GM_PATH_WAYS && way == GM_PATH_WAYS; i++)
		if (!words[i] || words[i] / GM_PATH_FRAMES == tag)
			way = i;
	if (way == GM_PATH_WAYS) {	/* the oldest of four */
		way = 0;
		for (uint32_t i = 1; i < GM_PATH_WAYS; i++)
			if ((at - words[i]) % GM_PATH_FRAMES > (at - words[way]) % GM_PATH_FRAMES)
				way = i;
	}
	words[way] = tag * GM_PATH_FRAMES | at;
	return at;
}

#endif
