/*
 * identity.h - who writes this journal: process, host, command.
 *
 * Thread context: the one thread in gm_recorder_start, under a gm_fd_guard. Nothing here fails: a field
 * whose value cannot be found (a chroot without /proc) stays 0 or "".
 */
#ifndef GM_RECORDER_IDENTITY_H
#define GM_RECORDER_IDENTITY_H

#include <stdbool.h>

#include "recorder/journal/format.h"

/* Fill in the part "who" of the header, except for the members that the configuration sets. */
void gm_identity_fill(struct gm_header *header);

/* Does the kernel forbid this user's other programs to look into this process (ptrace(2))? It does when
 * the process is not dumpable (it changed its user, or called prctl(2)), or when it has capabilities. */
bool gm_identity_guarded(void);

/* Is the process dumpable? Opens no file, in contrast to gm_identity_guarded. Any thread. */
bool gm_identity_dumpable(void);

/* Return the command as the names of files have it: the basename of argv[0]. */
const char *gm_identity_command(void);

/* Return when a process started, in clock ticks since boot: field 22 of @stat, the text of its
 * /proc/PID/stat. Fields are counted from the last parenthesis, because the name in field 2 may hold
 * anything. 0: the text has no such field, or the process is a zombie. */
uint64_t gm_identity_ticks(const char *stat);

/* Copy the kernel's id of this boot to @ret; "" when it is not known. Any thread. */
void gm_identity_boot(char ret[40]);

/* Copy @text into @field of @size bytes: cut it to fit, and fill the rest with NULs. NULL counts as "". */
void gm_text_copy(char *field, size_t size, const char *text);

#endif
