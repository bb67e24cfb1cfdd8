/*
 * top_screen.c - draw on a terminal, and obey keys: see top.h.
 *
 * A picture is drawn line by line, and each line is cut to the width, so a picture fits any terminal. Without room for
 * three tables, the chosen one is shown alone.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"
#include "tools/show/stacks.h"
#include "tools/top/top.h"

#define WIDE 140			/* least columns at which every number is shown */
#define PAGE 10			/* lines by which pageup and pagedown move */
#define BOLD "\033[1m"
#define REVERSE "\033[7m"
#define PLAIN "\033[0m"

struct canvas {
	FILE *out;
	int rows, columns, row;		/* lines written so far */
	bool color;
};

/* Write one line, cut to the canvas's columns in characters of UTF-8. @style: an escape sequence or "". */
__attribute__((format(printf, 3, 4)))
static void put(struct canvas *c, const char *style, const char *format, ...)
{
	char text[1500];
	va_list args;
	int columns = 0;
	size_t end = 0;

	if (c->row >= c->rows)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	while (text[end] && (columns < c->columns || ((unsigned char)text[end] & 0xc0) == 0x80)) {
		columns += ((unsigned char)text[end] & 0xc0) != 0x80;
		end++;
	}
	if (columns > c->columns)
		end--;
	fprintf(c->out, "%s%s%.*s%s\033[K", c->row ? "\r\n" : "", c->color ? style : "", (int)end,
		text, c->color && style[0] ? PLAIN : "");
	c->row++;
}

static void put_choice(struct canvas *c, bool chosen, const char *line)
{
	put(c, chosen ? REVERSE : "", "%c%s", chosen ? '>' : ' ', line);
}

/* Scroll so that the chosen line, of @count, is among the @height lines that are shown. */
static void follow(struct gm_top_view *view, enum gm_top_panel panel, size_t count, size_t height)
{
	size_t *chosen = &view->chosen[panel], *first = &view->first[panel];

	if (count && *chosen >= count)
		*chosen = count - 1;
	if (*chosen < *first)
		*first = *chosen;
	if (height && *chosen >= *first + height)
		*first = *chosen + 1 - height;
	if (*first + height > count)
		*first = count > height ? count - height : 0;
}

static void draw_processes(struct canvas *c, const struct gm_top *top, struct gm_top_view *view,
			   const struct gm_top_line *lines, size_t count, size_t height)
{
	char line[1400];

	gm_top_process_head(line, sizeof(line), c->columns >= WIDE);
	put(c, BOLD, " %s", line);
	follow(view, GM_TOP_PROCESSES, count, height);
	for (size_t i = view->first[GM_TOP_PROCESSES]; i < count && height; i++, height--) {
		gm_top_process_line(line, sizeof(line), lines[i].process, lines[i].device,
				    c->columns >= WIDE);
		put_choice(c,
			   view->panel == GM_TOP_PROCESSES && i == view->chosen[GM_TOP_PROCESSES],
			   line);
	}
	if (!top->count)
		put(c, "", " no process under libgpumem: gpumem run -- COMMAND starts one");
}

static void draw_rows(struct canvas *c, struct gm_top_view *view, enum gm_top_panel panel,
		      const struct gm_top_row **list, size_t count, size_t height)
{
	bool sites = panel != GM_TOP_MODULES && !view->phases;
	char line[1400];

	gm_top_row_head(line, sizeof(line), panel == GM_TOP_MODULES ? "module" :
			view->phases ? "annotation" : "call site", c->columns >= WIDE);
	put(c, BOLD, " %s", line);
	follow(view, panel, count, height);
	for (size_t i = view->first[panel]; i < count && height; i++, height--) {
		gm_top_row_line(line, sizeof(line), list[i], c->columns >= WIDE,
				sites ? (size_t)c->columns - 1 : SIZE_MAX);
		put_choice(c, view->panel == panel && i == view->chosen[panel], line);
	}
}

static void draw_help(struct canvas *c)
{
	static const char *const lines[] = {
		"up down pageup pagedown home end   choose a line",
		"tab                                the next table",
		"enter                              of a process: its modules and call sites "
		"alone; of a call site: its stack",
		"escape, backspace                  back",
		"s                                  sort by the next of live, peak, rate, growth, "
		"blocks, name",
		"l p r g b n                        sort by one of them",
		"w                                  write a snapshot of the chosen process (of "
		"all, when there is one)",
		"+ -                                sample more often, less often",
		"space                              pause",
		"? h                                this",
		"q                                  quit",
		"",
		"live: what was asked for and not freed (by module: its blocks). "
		"reserved: taken from the driver for it. cached: reserved and free.",
		"limbo: freed, and perhaps still in use by the GPU. growth: since top began. "
		"Rates: since the sample before.",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		put(c, "", " %s", lines[i]);
}

static void draw_stack(struct canvas *c, struct gm_top_view *view, const struct gm_top_row **sites)
{
	const struct gm_top_row *row = NULL;
	char frame[1024], text[GM_SITE_FIT];
	const char *frames;
	size_t count = 0;

	for (size_t i = 0; sites && sites[i] && !row; i++)
		if (!strcmp(sites[i]->name, view->inside))
			row = sites[i];
	put(c, BOLD, " %s", gm_show_clean(view->inside));
	if (!row) {
		put(c, "", " holds nothing any more");
		return;
	}
	put(c, "",
	    " %s in %s, %s%s since the start; the largest of its %s holds %s:",
	    gm_show_bytes(row->live), gm_show_count(row->blocks, "block"), row->growth > 0 ? "+" : "",
	    gm_show_bytes(row->growth), gm_show_count((int64_t)row->stacks, "stack"),
	    gm_show_bytes(row->stack_live));
	frames = row->stack && row->stack->frames ? row->stack->frames : "";
	for (const char *at = frames; (at = strchr(at, '\n')); at++)
		count++;
	view->scroll = view->scroll < count ? view->scroll : count - (count > 0);
	for (size_t i = 0; i < count && c->row + 1 < c->rows; i++) {
		snprintf(frame, sizeof(frame), "%.*s", (int)strcspn(frames, "\n"), frames);
		if (i >= view->scroll)
			put(c, "", " %3zu  %s", i, gm_site_fit(frame, (size_t)c->columns - 6, text));
		frames += strcspn(frames, "\n") + 1;
	}
	if (!count)
		put(c, "", "      (no stack)");
}

/* Draw the table of processes and the other chosen table or, if no other is chosen, that of call sites. Without room
 * for two tables, draw the chosen one. */
static void draw_two(struct canvas *c, const struct gm_top *top, struct gm_top_view *view,
		     const struct gm_top_line *lines, size_t count, const struct gm_top_row **lists[2],
		     const size_t counts[2], size_t height)
{
	enum gm_top_panel other = view->panel == GM_TOP_PROCESSES ? GM_TOP_SITES : view->panel;
	bool both = height >= 6;
	size_t processes = !both ? height - (height > 0) : (height - 2) / 3;

	processes = both && count < processes ? count + !count : processes;
	if (both || view->panel == GM_TOP_PROCESSES)
		draw_processes(c, top, view, lines, count, processes);
	if (both)
		height -= processes + 1;
	if (both || view->panel != GM_TOP_PROCESSES)
		draw_rows(c, view, other, lists[other - 1], counts[other - 1], height - (height > 0));
}

/* Draw three tables, or as many as fit into @height lines. */
static void draw_tables(struct canvas *c, const struct gm_top *top, struct gm_top_view *view,
			const struct gm_top_row **lists[2], const size_t counts[2], size_t height)
{
	size_t count, processes, modules;
	struct gm_top_line *lines = gm_top_lines(top, &count);

	if (height < 12) {
		draw_two(c, top, view, lines, count, lists, counts, height);
		free(lines);
		return;
	}
	height -= 5;			/* three heads and two empty lines */
	processes = height / 3;
	processes = count < processes ? count + !count : processes;
	modules = (height - processes) / 3;
	modules = counts[0] < modules ? counts[0] : modules;
	draw_processes(c, top, view, lines, count, processes);
	put(c, "", "%s", "");
	draw_rows(c, view, GM_TOP_MODULES, lists[0], counts[0], modules);
	put(c, "", "%s", "");
	draw_rows(c, view, GM_TOP_SITES, lists[1], counts[1], height - processes - modules);
	free(lines);
}

static size_t length_of(const struct gm_top_row **list)
{
	size_t count = 0;

	while (list && list[count])
		count++;
	return count;
}

void gm_top_draw(FILE *out, struct gm_top *top, struct gm_top_view *view, int rows, int columns)
{
	struct canvas c = { out, rows, columns, 0, view->color };
	const struct gm_top_row **lists[2] = {
		gm_top_sorted(view->only ? &view->only->modules : &top->modules, view->key),
		gm_top_sorted(view->only ? &view->only->sites : &top->sites, view->key)
	};
	const size_t counts[2] = { length_of(lists[0]), length_of(lists[1]) };
	char only[64] = "";

	if (view->only)
		snprintf(only, sizeof(only), "  process %lld alone", (long long)view->only->pid);
	fputs("\033[H", out);
	if (rows > 1)
		put(&c, BOLD, "gpumem top  %s  %zu process%s%s%s  by %s  every %g s%s%s", gm_top_clock(),
		    top->count, top->count == 1 ? "" : "es", gm_top_missed(top), gm_top_in_use(top),
		    gm_top_key_names[view->key], view->delay, only, view->paused ? "  PAUSED" : "");
	if (view->help)
		draw_help(&c);
	else if (view->inside[0])
		draw_stack(&c, view, lists[1]);
	else
		draw_tables(&c, top, view, lists, counts,
			    rows > 2 ? (size_t)rows - 2 : (size_t)(rows - 1) + (rows == 1));
	while (c.row + 1 < rows)
		put(&c, "", "%s", "");
	put(&c, "", "%s", view->message[0] ? gm_show_clean(view->message) :
	    view->inside[0] ? "escape back  up down scroll  w snapshot  q quit" :
	    "? help  tab table  enter details  s sort  w snapshot  space pause  q quit");
	fputs("\033[J", out);
	fflush(out);
	free(lists[0]);
	free(lists[1]);
}

/* ---- keys ------------------------------------------------------------------------------------- */

static size_t moved(size_t at, const char *key)
{
	if (!strcmp(key, "up") || !strcmp(key, "k"))
		return at ? at - 1 : 0;
	if (!strcmp(key, "down") || !strcmp(key, "j"))
		return at + 1;
	if (!strcmp(key, "pageup"))
		return at > PAGE ? at - PAGE : 0;
	if (!strcmp(key, "pagedown"))
		return at + PAGE;
	if (!strcmp(key, "home"))
		return 0;
	if (!strcmp(key, "end"))
		return SIZE_MAX / 2;		/* drawing moves the choice back to the last line */
	return at;
}

static const struct gm_top_process *chosen_process(const struct gm_top *top,
						   const struct gm_top_view *view)
{
	size_t count;
	struct gm_top_line *lines = gm_top_lines(top, &count);
	const struct gm_top_process *process = NULL;

	if (view->chosen[GM_TOP_PROCESSES] < count)
		process = lines[view->chosen[GM_TOP_PROCESSES]].process;
	free(lines);
	return process;
}

static void enter(const struct gm_top *top, struct gm_top_view *view)
{
	const struct gm_top_row **sites;

	if (view->panel == GM_TOP_PROCESSES) {
		view->only = chosen_process(top, view);
		return;
	}
	if (view->panel != GM_TOP_SITES)
		return;
	sites = gm_top_sorted(view->only ? &view->only->sites : &top->sites, view->key);
	for (size_t i = 0; sites && sites[i]; i++)
		if (i == view->chosen[GM_TOP_SITES]) {
			snprintf(view->inside, sizeof(view->inside), "%s", sites[i]->name);
			view->scroll = 0;
		}
	free(sites);
}

static void back(struct gm_top_view *view)
{
	if (view->help)
		view->help = false;
	else if (view->inside[0])
		view->inside[0] = '\0';
	else
		view->only = NULL;
}

static void sort_by(struct gm_top_view *view, char letter)
{
	static const char letters[GM_TOP_KEYS + 1] = "lprgbn";
	const char *at = strchr(letters, letter);

	if (letter == 's')
		view->key = (view->key + 1) % GM_TOP_KEYS;
	else if (at)
		view->key = (enum gm_top_key)(at - letters);
}

/* Return the process of which to take a snapshot: the only one that is shown, else the chosen one, else the only one
 * that there is. 0: none. */
static int64_t to_shoot(const struct gm_top *top, struct gm_top_view *view)
{
	const struct gm_top_process *process = view->only ? view->only :
		view->panel == GM_TOP_PROCESSES ? chosen_process(top, view) :
		top->count == 1 ? top->list[0] : NULL;

	if (process && process->state != GM_TOP_ENDED)
		return process->pid;
	snprintf(view->message, sizeof(view->message), "choose a process first: tab, up, down");
	return 0;
}

bool gm_top_press(const char *key, struct gm_top *top, struct gm_top_view *view, int64_t *ret_shoot)
{
	*ret_shoot = 0;
	if (strcmp(key, "resize"))
		view->message[0] = '\0';
	if (!strcmp(key, "q") || !strcmp(key, "end of input"))
		return false;
	if (!strcmp(key, "escape") || !strcmp(key, "backspace"))
		back(view);
	else if (!strcmp(key, "?") || !strcmp(key, "h"))
		view->help = !view->help;
	else if (!strcmp(key, "tab"))
		view->panel = (view->panel + 1) % GM_TOP_PANELS;
	else if (!strcmp(key, "enter"))
		enter(top, view);
	else if (!strcmp(key, " "))
		view->paused = !view->paused;
	else if (!strcmp(key, "+"))
		view->delay = view->delay > 0.1 ? view->delay / 2 : 0.05;
	else if (!strcmp(key, "-"))
		view->delay = view->delay < 30 ? view->delay * 2 : 60;
	else if (!strcmp(key, "w"))
		*ret_shoot = to_shoot(top, view);
	else if (view->inside[0])
		view->scroll = moved(view->scroll, key);
	else
		view->chosen[view->panel] = moved(view->chosen[view->panel], key);
	if (key[0] && !key[1])
		sort_by(view, key[0]);
	return true;
}
