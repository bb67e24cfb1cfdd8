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

/* Fill the header's part "who", but for what the configuration says. */
void gm_identity_fill(struct gm_header *header);

/* May other programs of this process's user not look into it (ptrace(2))? It is not dumpable: it
 * fell to that user from another one, or said so by prctl(2); or it has capabilities. */
bool gm_identity_guarded(void);

/* The first half of it, without a file: it is dumpable. Any thread. */
bool gm_identity_dumpable(void);

/* The command, as it stands in names of files: the basename of argv[0]. */
const char *gm_identity_command(void);

/* When a process started, in clock ticks since boot, by the text of its /proc/PID/stat: field 22,
 * counted from the last parenthesis because the name in field 2 may hold anything. 0: none, or a
 * zombie's. */
uint64_t gm_identity_ticks(const char *stat);

/* What the kernel calls this boot of the machine; "" unknown. Any thread. */
void gm_identity_boot(char ret[40]);

/* Copy @text into a field of @size bytes, cut, with a NUL. NULL is "". */
void gm_text_copy(char *field, size_t size, const char *text);

#endif
