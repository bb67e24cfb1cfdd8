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

/* In the order in which they are tried. */
enum gm_place_kind { GM_PLACE_OPTION, GM_PLACE_SHM, GM_PLACE_RUNTIME, GM_PLACE_TMP, GM_PLACE_MEMFD,
		     GM_PLACE_COUNT };

struct gm_place {
	int fd;				/* open for reading and writing, empty; 3 or higher */
	bool ours;			/* in a directory of ours: dead journals are swept there */
	uint64_t free_bytes;		/* left on the file system; UINT64_MAX: not limited */
	uint64_t device, inode;
	char directory[1024];		/* absolute */
	char name[256];			/* "": a memfd */
};

/*
 * Create an empty file for a journal. @option: the option journal, a directory or a file; a file
 * that exists already is left alone, and -2, -3 ... is put after the name. In every other place,
 * and where @option is a directory, the file lies in this user's directory there (directory.h).
 * Returns 0; -ENOENT when there is no such place (no option, variable not set); -errno.
 */
int gm_place_open(enum gm_place_kind kind, const char *option, const char *command,
		  struct gm_place *ret_place);

/* Close it and remove the file, if there is one. */
void gm_place_undo(struct gm_place *place);

/* Remove @name from @directory, if it still is the file of that device and inode. */
void gm_place_remove(const char *directory, const char *name, uint64_t device, uint64_t inode);

/* Find a directory for files that cannot be written where they should be: @directory (the
 * journal's; "" none), or this user's below $TMPDIR or /tmp, whichever lies on a disk. Nobody
 * removes these files, so that they must not take memory. Returns 0 and its path, or -errno. */
int gm_place_on_disk(const char *directory, char *ret_path, size_t size);

/* What the place is called in a message: "/dev/shm", "GPUMEM_JOURNAL" ... */
const char *gm_place_name(enum gm_place_kind kind);

#endif
