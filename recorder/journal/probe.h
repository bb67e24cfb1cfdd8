/*
 * probe.h - read memory that may not be there, and make system calls that leave errno alone.
 *
 * No signal handler is needed, because two system calls tell whether memory can be read.
 * rt_sigprocmask with an invalid @how copies the set from user memory (EFAULT when it cannot), then
 * refuses @how (EINVAL) and changes nothing. process_vm_readv on this process copies. Each is tried once
 * on addresses whose answer is known. A way that gives a wrong answer (kernel, sandbox) is not used;
 * with neither way, nothing is read.
 *
 * Thread context: any. Signal context: any. Neither errno nor any lock is touched.
 */
#ifndef GM_RECORDER_PROBE_H
#define GM_RECORDER_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Make a system call. Returns its result or -errno. */
long gm_syscall(long number, long a, long b, long c, long d, long e, long f);

/* Can the 8 bytes at @address (8-byte aligned) be read now? False also when neither way works. */
bool gm_probe_word(uintptr_t address);

/* Copy the readable bytes from @address on, at most @bytes, to @dst. Returns how many were copied. */
size_t gm_probe_copy(void *dst, uintptr_t address, size_t bytes);

#endif
