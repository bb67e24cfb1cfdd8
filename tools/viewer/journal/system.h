/*
 * system.h - what the reader of journals uses and wasi-libc, the C library for WebAssembly, does not have: included
 * before every file that the page's reader is made of. include/ has headers that wasi-libc lacks altogether.
 */
#ifndef GM_VIEWER_SYSTEM_H
#define GM_VIEWER_SYSTEM_H

/* The header of a journal has a mutex in it, which is as long as it is for those who write one: the Makefile asks
 * their compiler. Nothing looks into it but for its first word. */
#define __DEFINED_pthread_mutex_t
typedef union { char room[GM_MUTEX_BYTES]; long long align; } pthread_mutex_t;

#define ENODATA 200
#define SEEK_DATA 3
#define SEEK_HOLE 4

#endif
