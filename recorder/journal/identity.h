/*
 * identity.h - who writes this journal: process, host, command.
 *
 * Thread context: the one thread in gm_recorder_start, under a gm_fd_guard. Nothing here fails:
 * what is not known (a chroot without /proc) stays 0 or "".
 */
#ifndef GM_RECORDER_IDENTITY_H
#define GM_RECORDER_IDENTITY_H

#include <stdbool.h>

#include "recorder/journal/format.h"

/* Fill the header's part "who", except for the members that the configuration gives. */
void gm_identity_fill(struct gm_header *header);

/* Are other programs of this user forbidden to look into this process (ptrace(2))? They are where
 * it is not dumpable (it changed its user, or asked for that by prctl(2)), or has capabilities. */
bool gm_identity_guarded(void);

/* Is the process dumpable? The first half of the question above, which opens no file. Any
 * thread. */
bool gm_identity_dumpable(void);

/* The command as it is used in the names of files: the basename of argv[0]. */
const char *gm_identity_command(void);

/* When a process started, in clock ticks since boot, from the text of its /proc/PID/stat: field 22,
 * counted from the last parenthesis because the name in field 2 may hold anything. 0: the text has
 * none, or the process is a zombie. */
uint64_t gm_identity_ticks(const char *stat);

/* The kernel's id of this boot of the machine; "" where it is not known. Any thread. */
void gm_identity_boot(char ret[40]);

/* Copy @text into @field, cut to @size bytes with its NUL. NULL is copied as "". */
void gm_text_copy(char *field, size_t size, const char *text);

#endif
