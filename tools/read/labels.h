/*
 * labels.h - where a living process belongs: its job, pod and container, by its environment and control group.
 * Single-threaded.
 */
#ifndef GM_TOOLS_LABELS_H
#define GM_TOOLS_LABELS_H

#include <sys/types.h>

enum { GM_LABEL_JOB, GM_LABEL_NAMESPACE, GM_LABEL_POD, GM_LABEL_CONTAINER, GM_LABELS };

extern const char *const gm_label_names[GM_LABELS];

/* "" is what nothing tells. */
struct gm_labels { char text[GM_LABELS][128]; };

/* What /proc says of @pid; all "" where it may not be read. */
void gm_labels_of(pid_t pid, struct gm_labels *ret);

#endif
