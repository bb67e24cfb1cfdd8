/*
 * probe.h - reading memory that may not be there, and system calls that leave errno alone.
 *
 * The kernel is asked, never a signal handler: rt_sigprocmask with an impossible @how copies the
 * set from user memory (EFAULT when it cannot) before it refuses (EINVAL) and changes nothing;
 * process_vm_readv on ourselves copies. Both are tried once on addresses whose answer is known;
 * under a kernel or sandbox that answers otherwise nothing is read at all.
 *
 * Thread context: any. Signal context: any. Neither errno nor any lock is touched.
 */
#ifndef GM_RECORDER_PROBE_H
#define GM_RECORDER_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A system call: its result or -errno. */
long gm_syscall(long number, long a, long b, long c, long d, long e, long f);

/* Can the 8 bytes at @address (8-byte aligned) be read now? False, too, where the kernel does not
 * tell. */
bool gm_probe_word(uintptr_t address);

/* Copy up to @bytes from @address to @dst; returns how many could be, from its beginning. */
size_t gm_probe_copy(void *dst, uintptr_t address, size_t bytes);

#endif
