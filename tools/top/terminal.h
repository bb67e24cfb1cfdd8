/*
 * terminal.h - a terminal in raw mode on its second screen, restored whatever happens.
 *
 * Single-threaded. Handlers of the signals that end or stop a program are installed
 * meanwhile: they restore it and then let the signal do what it does.
 */
#ifndef GM_TOOLS_TERMINAL_H
#define GM_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

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
