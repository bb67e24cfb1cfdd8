/*
 * writers.h - who may write device memory, or read it, when that is no work of a stream.
 *
 * Network cards (RDMA, GDRCopy), storage, other processes through IPC: then a freed block waits for
 * its epoch, whatever stream comes next, and requests of 2 MiB and more get segments of their own,
 * for importers that do not know of parts of segments (imports.h). Both for good.
 *
 * Seen by what the program calls, and by the names of the libraries that do such things.
 * Thread context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_WRITERS_H
#define GM_PRELOAD_WRITERS_H

#include <stdbool.h>
#include <stdint.h>

/* There is one. @why (a constant) is said under verbose. Inside a hook, no lock held. */
void gm_writers_seen(const char *why);

/* The same from inside another hook of this thread: it counts from where the next segment is made.
 * No lock is taken, nothing is called. Signal context: any. */
void gm_writers_met(const char *why);

/* Was there ever one? For a cache that starts afterwards. */
bool gm_writers_any(void);

/* Was a library loaded since the last time that makes there be one? Where segments are made: takes
 * the loader's lock for a moment when something was loaded. Inside a hook, no lock held. */
void gm_writers_look(void);

/* A module was met: it has this number and path. No lock is taken, nothing is called. */
void gm_writers_module(uint16_t module, const char *path);

/* @caller (GM_CALLER, of the hook's frame) asks what a block of ours is. */
void gm_writers_asked(const void *caller);

/* Is a large request by @module to have a segment of its own from its beginning? NCCL hands its
 * buffers to other processes and to network cards. */
bool gm_writers_own_segment(uint16_t module);

/* Does @module never lean on cudaFree as a wait for the GPU? Then its frees need not wait. */
bool gm_writers_frees_freely(uint16_t module);

#endif
