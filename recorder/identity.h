/*
 * identity.h - who writes this journal: process, host, command.
 *
 * Thread context: the one thread in gm_recorder_start, under a gm_fd_guard. Nothing here fails:
 * what cannot be told (a chroot without /proc) stays 0 or "".
 */
#ifndef GM_RECORDER_IDENTITY_H
#define GM_RECORDER_IDENTITY_H

#include "recorder/format.h"

/* Fill the header's part "who", but for what the configuration says. */
void gm_identity_fill(struct gm_header *header);

/* The command, as it stands in names of files: the basename of argv[0]. */
const char *gm_identity_command(void);

/* Copy @text into a field of @size bytes, cut, with a NUL. NULL is "". */
void gm_text_copy(char *field, size_t size, const char *text);

#endif
