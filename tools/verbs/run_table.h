/*
 * run_table.h - what became of the processes of one gpumem run: their snapshots, peaks and leaks.
 *
 * Every process that allocated is known by its journal's name: those that died have left the
 * journal; the others a link beside it for each snapshot that they wrote (preload/triggers/snap.c).
 * Single-threaded.
 */
#ifndef GM_TOOLS_RUN_TABLE_H
#define GM_TOOLS_RUN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gm_run_process {
	char *journal;			/* its name: who it is */
	char *snapshot;			/* the one that tells most; NULL none */
	char *at_oom;			/* when memory ran out for the last time; NULL */
	uint64_t oom_number;		/* its number among those */
	char *note;			/* why there is none; NULL */
	unsigned int worth;		/* of that snapshot against others of the process */
	unsigned int others;		/* snapshots besides */
	bool known;			/* the numbers below are */
	bool alive, dead;		/* dead: it left its journal */
	char how[24];			/* "SIGSEGV", "killed", "exit" */
	char command[64];
	int64_t pid, rank;
	int64_t peak, live, blocks, ooms;
	unsigned int in_flight;
};

struct gm_run_table {
	struct gm_run_process *list;
	size_t count;
	bool looked, began;		/* a room was looked into; in it a process had begun to record */
	pid_t child;			/* that gpumem run started, 0 none, and its wait status */
	int status;
};

/* Recover the journals in the open directory @room, whose name is @path, read the links, and remove what is
 * ours in it. */
void gm_run_collect(struct gm_run_table *table, int room, const char *path);

/* Write @line and a newline to stderr. On a terminal it is broken between words, at the terminal's width; at 80 columns
 * where that is not known. */
void gm_run_say(const char *line);

/* On stderr: a line for one process, a table for several, and what to type next. */
void gm_run_print(const struct gm_run_table *table);
void gm_run_forget(struct gm_run_table *table);

#endif
