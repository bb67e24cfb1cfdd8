/*
 * run_table.h - what became of the processes of one gpumem run: their snapshots, peaks and leaks. Single-threaded.
 *
 * Every process that allocated is known by the name of its journal. A process that died has left the journal. The other
 * processes have left a link beside it for each snapshot that they wrote (preload/triggers/snap.c).
 */
#ifndef GM_TOOLS_RUN_TABLE_H
#define GM_TOOLS_RUN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gm_run_process {
	char *journal;			/* name of the journal, which identifies the process */
	char *snapshot;			/* path of the snapshot that says most; NULL: none */
	char *at_oom;			/* path of the snapshot of the last out-of-memory failure; NULL: none */
	uint64_t oom_number;		/* number of @at_oom among these */
	char *note;			/* why there is no snapshot; NULL: no reason */
	unsigned int worth;		/* how much @snapshot says, against others of the process */
	unsigned int others;		/* further snapshots of the process */
	bool known;			/* @peak to @ooms are known */
	bool alive, dead;		/* dead: the process left its journal */
	char how[24];			/* "SIGSEGV", "killed", "exit" */
	char command[64];
	int64_t pid, rank;
	int64_t peak, live, blocks, ooms;
	unsigned int in_flight;
};

struct gm_run_table {
	struct gm_run_process *list;
	size_t count;
	bool looked, began;		/* the room was searched; a process had begun to record there */
	pid_t child;			/* the process that gpumem run started (0: none), and its wait status */
	int status;
};

/* Recover the journals in the open directory @room, whose name is @path, and read the links. Remove the journals, the
 * links and, if it is empty, the room. */
void gm_run_collect(struct gm_run_table *table, int room, const char *path);

/* Write @line and a newline to stderr. On a terminal, break the line between words at the terminal's width (80 columns
 * if that is unknown). */
void gm_run_say(const char *line);

/* Print on stderr: a line for one process or a table for several, and the command to type next. */
void gm_run_print(const struct gm_run_table *table);
void gm_run_forget(struct gm_run_table *table);

#endif
