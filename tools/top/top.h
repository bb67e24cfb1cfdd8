/*
 * top.h - the verb top: samples of what living processes hold.
 *
 *	top.c         the verb: options, batch mode, the loop
 *	top_sample.c  sample one process: a snapshot, and the numbers in it
 *	top_names.c   names of call sites and frames, with source lines
 *	top_all.c     find processes, and add up the numbers of all
 *	top_print.c   print plain text and JSON
 *	top_screen.c  draw on a terminal, and obey keys
 *	terminal.c    raw mode, which ends however the program ends
 *
 * Single-threaded. No process is signalled or stopped; journals are read by pread.
 */
#ifndef GM_TOOLS_TOP_H
#define GM_TOOLS_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "allocator/table.h"
#include "tools/read/attach.h"
#include "tools/read/load.h"
#include "tools/read/table.h"

/* A device, pinned host memory, or a pool of the program's. */
struct gm_top_device {
	bool present;
	unsigned int ordinal;		/* the device's number in the process; of a pool, that of its device */
	char name[128];
	char uuid[40];
	int64_t total, free;		/* bytes of the device */
	int64_t sampled;		/* when @free was read, in microseconds since 1970; 0: never */
	int64_t live, reserved, cached, peak, blocks;
	int64_t pending;		/* -1 for a pool, which does not report it */
	int64_t allocations, allocated;	/* calls and bytes since the start */
	double calls_rate, bytes_rate;	/* for each second since the previous sample */
};

struct gm_top_stack;

/* A module or a call site, of one process or of all. */
struct gm_top_row {
	const char *name;
	int64_t live, peak, blocks;	/* @peak: -1 if not known */
	int64_t growth;			/* bytes since the first sample */
	int64_t allocations, allocated;	/* since the start; -1 if not known */
	double calls_rate, bytes_rate;
	struct gm_top_stack *stack;	/* the stack of the call site that holds most; NULL: none holds memory */
	int64_t stack_live;		/* bytes that @stack holds */
	size_t stacks;
};

/* Rows. The processes own the stacks to which rows refer. */
struct gm_top_rows {
	struct gm_top_row *list;
	size_t count;
	struct gm_values *texts;	/* the names, each once */
	struct gm_table found;		/* address of a name -> its row + 1 */
};

#define GM_TOP_OTHER_STACKS UINT32_MAX	/* stands for all stacks beyond the limit; no stack has this id */
struct gm_top_stack {
	uint32_t id;
	char *site;			/* name of its call site; NULL: not known yet */
	char *frames;			/* names of its frames, innermost first, each ended by a newline */
	bool named;			/* every frame has its final name */
	int64_t first, live, blocks;	/* @first: live at the first sample */
};

enum gm_top_state { GM_TOP_RUNNING, GM_TOP_ENDED, GM_TOP_UNREADABLE };

struct gm_top_process {
	int64_t pid;			/* in our PID namespace */
	int fd;				/* its journal; -1: the journal is opened for each sample */
	dev_t device;			/* @device and @inode identify the journal's file */
	ino_t inode;
	enum gm_top_state state;
	bool ours;			/* it belongs to our user, so files that it names may be opened for lines */
	bool found;			/* "all" found it, so it is no error if it cannot be read */
	char command[64], error[256];
	int rank;			/* -1: it has none */
	bool consistent;		/* the last sample shows a single moment */
	bool phases;			/* @sites are its named ranges */
	bool driver;			/* @sites have the pieces of pools, and not the blocks that pools handed out */
	uint64_t samples;
	double when;			/* time of the last sample, in seconds of CLOCK_MONOTONIC */
	struct gm_top_device devices[GM_DOMAINS];	/* by domain: pinned host memory and pools among them */
	struct gm_top_rows modules, sites;
	struct gm_top_stack **stacks;	/* all that held memory in any sample */
	size_t stack_count;
	struct gm_table known;		/* stack -> place in @stacks + 1 */
};

struct gm_top {
	struct gm_top_process **list;
	size_t count;
	bool all;			/* show every process, also those that start later */
	bool phases;			/* --by annotation: @sites are named ranges */
	bool driver;			/* --level driver: leave out blocks that pools handed out */
	double searched;		/* time of the last search for processes */
	size_t missed;			/* processes that this search could not look into (gm_discover) */
	struct gm_top_rows modules, sites;	/* sums over all processes */
};

/* ---- top_sample.c ---- */

/* Return the process @pid, whose journal is open as the caller's @fd. With @hold it keeps a duplicate of @fd until
 * gm_top_close. NULL: out of memory. */
struct gm_top_process *gm_top_open(int64_t pid, int fd, bool hold);
void gm_top_close(struct gm_top_process *process);

/* Take a sample. Returns 0, or -errno with the reason in @state and @error. */
int gm_top_sample(struct gm_top_process *process);

/* Load a snapshot of @process. Returns 0, or -errno with the reason in @error. */
int gm_top_load(struct gm_top_process *process, const struct gm_attached *attached, enum gm_load what,
		struct gm_loaded *ret);

/* top_names.c: name the call sites and frames of stacks that are new or lacked a name. Returns 0 or -errno. */
int gm_top_names(struct gm_top_process *process, const struct gm_attached *attached);
void gm_top_forget_names(struct gm_top_stack *stack);

/* Return the row of @name, and make the row if there is none. NULL: out of memory. */
struct gm_top_row *gm_top_row(struct gm_top_rows *rows, const char *name);
void gm_top_rows_free(struct gm_top_rows *rows);

/* ---- top_all.c ---- */

/* Add a process. Returns 0, or an error of gm_attach. */
int gm_top_add(struct gm_top *top, int64_t pid);
/* Sample all processes. Returns how many are running. */
int gm_top_refresh(struct gm_top *top);
void gm_top_free(struct gm_top *top);

enum gm_top_key {
	GM_TOP_BY_LIVE,
	GM_TOP_BY_PEAK,
	GM_TOP_BY_RATE,
	GM_TOP_BY_GROWTH,
	GM_TOP_BY_BLOCKS,
	GM_TOP_BY_NAME,
	GM_TOP_KEYS
};
extern const char *const gm_top_key_names[GM_TOP_KEYS];

/* Return pointers to the rows in the order of @key, ended by NULL, for free(). NULL: out of memory. */
const struct gm_top_row **gm_top_sorted(const struct gm_top_rows *rows, enum gm_top_key key);

/* ---- top_print.c ---- */

/* Print at most @most rows of each table. */
void gm_top_text(FILE *out, const struct gm_top *top, size_t most);
void gm_top_json(FILE *out, const struct gm_top *top);
/* Write a line of a table. With @wide it has every column, else the columns that fit into 80. */
void gm_top_process_head(char *ret, size_t room, bool wide);
void gm_top_process_line(char *ret, size_t room, const struct gm_top_process *process,
			 unsigned int d, bool wide);
void gm_top_row_head(char *ret, size_t room, const char *what, bool wide);
/* The row is cut to @columns; SIZE_MAX: it is not cut. */
void gm_top_row_line(char *ret, size_t room, const struct gm_top_row *row, bool wide, size_t columns);
/* These three return static memory. Return the time of day as "14:03:22". */
const char *gm_top_clock(void);
/* Return "; 3 could not be looked into"; "" if there is no such process. */
const char *gm_top_missed(const struct gm_top *top);
/* Return "; device 0: 3.20 GiB of 80.00 GiB in use, device 1: ..." for all devices that the processes use; "" if there
 * is none. */
const char *gm_top_in_use(const struct gm_top *top);

/* ---- top_screen.c ---- */

enum gm_top_panel { GM_TOP_PROCESSES, GM_TOP_MODULES, GM_TOP_SITES, GM_TOP_PANELS };
struct gm_top_view {
	enum gm_top_key key;
	enum gm_top_panel panel;
	size_t chosen[GM_TOP_PANELS], first[GM_TOP_PANELS];
	const struct gm_top_process *only;	/* show the modules and sites of this process; NULL: of all */
	char inside[512];		/* the call site whose stack is shown; "": none is */
	size_t scroll;			/* lines of that stack above the first that is shown */
	bool help, paused, color, phases;	/* @phases: as in gm_top */
	double delay;
	char message[256];
};
struct gm_top_line { struct gm_top_process *process; unsigned int device; };	/* GM_DOMAINS: none yet */
/* Return the lines of the table of processes, for free(). NULL: out of memory, with a count of 0. */
struct gm_top_line *gm_top_lines(const struct gm_top *top, size_t *ret_count);
/* Write a picture of @rows by @columns characters. */
void gm_top_draw(FILE *out, struct gm_top *top, struct gm_top_view *view, int rows, int columns);

/* Do what @key asks for. Returns false if the user wants to quit. *@ret_shoot: the process of which the user wants a
 * snapshot; 0: none. */
bool gm_top_press(const char *key, struct gm_top *top, struct gm_top_view *view,
		  int64_t *ret_shoot);

/* ---- terminal.c ------------------------------------------------------------------------------- */

/*
 * A terminal in raw mode on its second screen. The signals that end or stop a program have handlers meanwhile, which
 * restore the terminal and then let the signal take its usual effect.
 */

/* Switch to the second screen, without echo and cursor. Returns 0 or -errno. */
int gm_terminal_take(void);
void gm_terminal_restore(void);

/* Return the size in lines and columns, at least 1 each. */
void gm_terminal_size(int *ret_rows, int *ret_columns);

/* Wait at most @seconds for a key. Returns its bytes or its name ("up", "down", "pageup", "pagedown", "home", "end",
 * "escape", "enter", "tab", "backspace"); "resize" if the size has changed; "end of input" if the terminal was closed;
 * NULL: no key came. Static memory. */
const char *gm_terminal_key(double seconds);

#endif
