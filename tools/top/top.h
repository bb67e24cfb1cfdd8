/*
 * top.h - what living processes hold, sampled again and again: for the verb top.
 *
 *	top.c         the verb: options, batch mode, the loop
 *	top_sample.c  a process's snapshot into numbers
 *	top_names.c   call sites and frames, with source lines
 *	top_all.c     which processes; those of all together
 *	top_print.c   as plain text and as JSON
 *	top_screen.c  on a terminal: what is shown where, and what keys do
 *	terminal.c    raw mode, its end whatever happens
 *
 * Single-threaded. Nobody is signalled or stopped; journals are read by pread.
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
	unsigned int ordinal;		/* as the process counts them; of a pool its device */
	char name[128];
	char uuid[40];
	int64_t total, free;		/* of the device */
	int64_t sampled;		/* when @free was so, in us; 0: never */
	int64_t live, reserved, cached, peak, blocks;
	int64_t pending;		/* -1 not known: of pools */
	int64_t allocations, allocated;	/* ever: calls, bytes */
	double calls_rate, bytes_rate;	/* a second, since the sample before */
};

struct gm_top_stack;

/* A module or a call site, of one process or of all. */
struct gm_top_row {
	const char *name;
	int64_t live, peak, blocks;	/* peak: -1 not known */
	int64_t growth;			/* bytes since the first sample */
	int64_t allocations, allocated;	/* ever; -1 not known */
	double calls_rate, bytes_rate;
	struct gm_top_stack *stack;	/* that holds most of a call site; NULL: none holds anything */
	int64_t stack_live;		/* what that stack holds */
	size_t stacks;
};

/* Their stacks are those of the processes, and freed with them. */
struct gm_top_rows {
	struct gm_top_row *list;
	size_t count;
	struct gm_values *texts;	/* the names, each once */
	struct gm_table found;		/* where one lies -> its row + 1 */
};

#define GM_TOP_OTHER_STACKS UINT32_MAX	/* the id of those without room; no stack has it */
struct gm_top_stack {
	uint32_t id;
	char *site;			/* how its call site is called; NULL: not known yet */
	char *frames;			/* innermost first, each with a newline behind it */
	bool named;			/* every frame has its name: none will get another one */
	int64_t first, live, blocks;	/* @first: live at the first sample */
};

enum gm_top_state { GM_TOP_RUNNING, GM_TOP_ENDED, GM_TOP_UNREADABLE };

struct gm_top_process {
	int64_t pid;			/* as seen from here */
	int fd;				/* its journal; -1: none is held, it is opened for each sample */
	dev_t device;			/* which file it is */
	ino_t inode;
	enum gm_top_state state;
	bool ours;			/* of our user: files that it names may be opened for lines */
	bool found;			/* by "all": it need not be readable */
	char command[64], error[256];
	int rank;			/* -1 none */
	bool consistent;		/* the last sample is of one moment */
	bool phases;			/* @sites are its named ranges */
	bool driver;			/* pieces of pools are in @sites, and not what pools handed out */
	uint64_t samples;
	double when;			/* of the last sample, on CLOCK_MONOTONIC, seconds */
	struct gm_top_device devices[GM_DOMAINS];	/* by domain: pinned host memory and pools among them */
	struct gm_top_rows modules, sites;
	struct gm_top_stack **stacks;	/* that held something at some sample */
	size_t stack_count;
	struct gm_table known;		/* stack -> place in @stacks + 1 */
};

struct gm_top {
	struct gm_top_process **list;
	size_t count;
	bool all;			/* every process, new ones too */
	bool phases;			/* by annotation: @sites are named ranges */
	bool driver;			/* at the driver's level: nothing of pools */
	double searched;		/* when that was done last */
	size_t missed;			/* then: how many could not be looked into (gm_discover) */
	struct gm_top_rows modules, sites;	/* of all together */
};

/* top_sample.c */
/* Of process @pid, whose journal is open as @fd, which stays the caller's. @hold: a descriptor of its own is kept until
 * gm_top_close. NULL: out of memory. */
struct gm_top_process *gm_top_open(int64_t pid, int fd, bool hold);
void gm_top_close(struct gm_top_process *process);
int gm_top_sample(struct gm_top_process *process); /* 0, or -errno: then @state and @error say */

/* Load @process. 0, or -errno and @error. */
int gm_top_load(struct gm_top_process *process, const struct gm_attached *attached, enum gm_load what,
		struct gm_loaded *ret);

/* top_names.c: call sites and frames of the process's stacks, where there are new ones, or names that were missing.
 * 0 or -errno. */
int gm_top_names(struct gm_top_process *process, const struct gm_attached *attached);
void gm_top_forget_names(struct gm_top_stack *stack);

/* The row of that name, made if need be; NULL: out of memory. */
struct gm_top_row *gm_top_row(struct gm_top_rows *rows, const char *name);
void gm_top_rows_free(struct gm_top_rows *rows);

/* top_all.c */
int gm_top_add(struct gm_top *top, int64_t pid);	/* 0 or as gm_attach */
int gm_top_refresh(struct gm_top *top);			/* sample all; the number that run */
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

/* Pointers to the rows in that order, NULL behind the last; free() them. NULL: out of memory. */
const struct gm_top_row **gm_top_sorted(const struct gm_top_rows *rows, enum gm_top_key key);

/* top_print.c: @most rows of each table. */
void gm_top_text(FILE *out, const struct gm_top *top, size_t most);
void gm_top_json(FILE *out, const struct gm_top *top);
/* Lines of tables. @wide: every column; otherwise those that an 80-column terminal has room for. */
void gm_top_process_head(char *ret, size_t room, bool wide);
void gm_top_process_line(char *ret, size_t room, const struct gm_top_process *process,
			 unsigned int d, bool wide);
void gm_top_row_head(char *ret, size_t room, const char *what, bool wide);
/* @columns: those of a line in which the row has to fit; SIZE_MAX: a line has no end. */
void gm_top_row_line(char *ret, size_t room, const struct gm_top_row *row, bool wide, size_t columns);
const char *gm_top_clock(void);		/* "14:03:22"; static memory */

/* "; 3 could not be looked into", or "". Static memory. */
const char *gm_top_missed(const struct gm_top *top);
/* "; device 0: 3.20 GiB of 80.00 GiB in use, device 1: ...", of all devices that the processes use, or "". Static
 * memory. */
const char *gm_top_in_use(const struct gm_top *top);

/* top_screen.c: one picture of @rows by @columns into @out; what is chosen where. */
enum gm_top_panel { GM_TOP_PROCESSES, GM_TOP_MODULES, GM_TOP_SITES, GM_TOP_PANELS };
struct gm_top_view {
	enum gm_top_key key;
	enum gm_top_panel panel;
	size_t chosen[GM_TOP_PANELS], first[GM_TOP_PANELS];
	const struct gm_top_process *only;	/* its modules and sites alone; NULL: all */
	char inside[512];		/* the call site whose stack is shown; "" none */
	size_t scroll;			/* within that */
	bool help, paused, color, phases;	/* @phases: as of gm_top */
	double delay;
	char message[256];
};
struct gm_top_line { struct gm_top_process *process; unsigned int device; };	/* GM_DOMAINS: nothing yet */
/* free() them. NULL: out of memory, and a count of 0. */
struct gm_top_line *gm_top_lines(const struct gm_top *top, size_t *ret_count);
void gm_top_draw(FILE *out, struct gm_top *top, struct gm_top_view *view, int rows, int columns);

/* False: the user is done. @ret_shoot: take a snapshot of this process; 0 none. */
bool gm_top_press(const char *key, struct gm_top *top, struct gm_top_view *view,
		  int64_t *ret_shoot);

/* ---- terminal.c ------------------------------------------------------------------------------- */

/*
 * A terminal in raw mode on its second screen, restored whatever happens. Meanwhile there are handlers for
 * the signals that end or stop a program: they restore it, and then let the signal do what it does.
 */

/* The second screen, no echo, no cursor. Returns 0 or -errno. */
int gm_terminal_take(void);
void gm_terminal_restore(void);

/* Lines and columns, at least 1 each. */
void gm_terminal_size(int *ret_rows, int *ret_columns);

/* The next key within @seconds: its bytes, or a name ("up", "down", "pageup", "pagedown", "home",
 * "end", "escape", "enter", "tab", "backspace"); "resize" when the size changed; NULL: none came. "end of
 * input" when the terminal was closed. Static memory. */
const char *gm_terminal_key(double seconds);

#endif
