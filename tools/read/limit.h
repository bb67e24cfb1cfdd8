/*
 * limit.h - how much may come of an input: bombs of a few hundred bytes would take gigabytes, so memory,
 * output and what is unpacked are held in proportion to what is read. --no-limit is for who means it.
 *
 * What real inputs take is far below: 119 MB of ours are 0.4 GB of memory at the most, and 2.05 GB as
 * PyTorch's JSON, 17 times as much; 93 MB of PyTorch's pickle, whose stacks are of 64 frames, 22 times.
 * A trace is packed to a quarter. One thread.
 */
#ifndef GM_TOOLS_LIMIT_H
#define GM_TOOLS_LIMIT_H

#include <stdint.h>

/* No limits, from now on; for a child process that reads what nobody hostile made, too. */
void gm_limit_lift(void);

/* @bytes more are read: the memory of this process ends 512 MiB and 64 times all of them above what it
 * had at the first of these calls. @reserved bytes of address space are taken beside that, or freed. */
void gm_limit_input(uint64_t bytes, int64_t reserved);

/* How many bytes may be written: 64 MiB and 1000 times what was read. */
uint64_t gm_limit_output(void);

/* How many bytes @packed bytes may become: 64 MiB and 100 times as much. */
uint64_t gm_limit_unpacked(uint64_t packed);

/* The error @r (-errno) in words: -ENOMEM and -EOVERFLOW name the limit. Static memory. */
const char *gm_limit_why(int r);

#endif
