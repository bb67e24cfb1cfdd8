/*
 * top_keys.c - what keys do in top: see top.h.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tools/top/top.h"

#define PAGE 10

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
		return SIZE_MAX / 2;		/* drawing brings it back to the last */
	return at;
}

static const struct gm_top_process *chosen_process(const struct gm_top *top,
						   const struct gm_top_view *view)
{
	size_t room = top->count * GM_DOMAINS + 1, count;
	struct gm_top_line *lines = calloc(room, sizeof(*lines));
	const struct gm_top_process *process = NULL;

	if (!lines)
		return NULL;
	count = gm_top_lines(top, lines, room);
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

static void change_delay(struct gm_top_view *view, bool faster)
{
	view->delay = faster ? view->delay / 2 : view->delay * 2;
	view->delay = view->delay < 0.05 ? 0.05 : view->delay > 60 ? 60 : view->delay;
}

/* The process that a snapshot is asked of: the chosen one, the only one shown, the only one. */
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
	else if (!strcmp(key, "+") || !strcmp(key, "-"))
		change_delay(view, key[0] == '+');
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
