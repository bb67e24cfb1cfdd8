/*
 * input.h - an input file, opened: a regular file, or a pipe. One thread.
 */
#ifndef GM_TOOLS_INPUT_H
#define GM_TOOLS_INPUT_H

#include <stddef.h>

/* Open @path for reading; a pipe with a writer is waited for, one without is empty. What cannot be
 * an input (a directory, a device, a socket) is not opened at all: opening one may hang, or do
 * something. Returns the descriptor, or -errno with one clause of @error saying why. */
int gm_input_open(const char *path, char *ret_error, size_t bytes);

/* For who reads it more than once: a pipe, or standard input ("-"), is copied. @ret_path is what to
 * open, of at least GM_INPUT_PATH bytes, as long as the descriptor that is returned is open. */
#define GM_INPUT_PATH 4096
int gm_input_whole(const char *path, char *ret_path, char *ret_error, size_t bytes);

/* What to say of an input with nothing in it. */
const char *gm_input_nothing(int fd);

#endif
