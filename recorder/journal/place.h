/*
 * place.h - where the journal's file lies.
 *
 * Thread context: the one thread in gm_recorder_start; gm_place_remove and gm_place_on_disk by any
 * one thread. The caller holds a gm_fd_guard. Signal context: none.
 */
#ifndef GM_RECORDER_PLACE_H
#define GM_RECORDER_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The places, in the order in which they are tried. */
enum gm_place_kind { GM_PLACE_OPTION, GM_PLACE_SHM, GM_PLACE_RUNTIME, GM_PLACE_TMP, GM_PLACE_MEMFD,
		     GM_PLACE_COUNT };

struct gm_place {
	int fd;				/* open for reading and writing, empty; 3 or higher */
	bool ours;			/* the directory is ours, so dead journals are removed from it */
	uint64_t free_bytes;		/* of the file system; UINT64_MAX: no limit */
	uint64_t device, inode;
	char directory[1024];		/* absolute */
	char name[256];			/* "": a memfd */
};

/*
 * Create an empty file for a journal in the place @kind. @option is the option `journal`: a directory
 * or a file. An existing file is left alone, and the new one gets -2, -3 ... after its name. In every
 * other place, and when @option is a directory, the file lies in this user's directory (directory.h).
 * Returns 0; -ENOENT when the place does not exist (no option, variable not set); -errno.
 */
int gm_place_open(enum gm_place_kind kind, const char *option, const char *command,
		  struct gm_place *ret_place);

/* Close the descriptor of @place and remove its file, if there is one. */
void gm_place_undo(struct gm_place *place);

/* Remove @name from @directory, unless another file (another @device or @inode) has taken the name. */
void gm_place_remove(const char *directory, const char *name, uint64_t device, uint64_t inode);

/* Find a directory for files that cannot be written where the user wanted them: @directory (the
 * journal's; "": none) if it lies on a disk; else this user's below $TMPDIR or /tmp if that lies on a disk.
 * File systems in memory are refused, because nobody removes these files.
 * Returns 0 and the path, or -errno. */
int gm_place_on_disk(const char *directory, char *ret_path, size_t size);

/* Return the name of the place for messages: "/dev/shm", "GPUMEM_JOURNAL" ... */
const char *gm_place_name(enum gm_place_kind kind);

#endif
