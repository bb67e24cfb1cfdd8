/*
 * show.h - text for people: what came from a file is made harmless, headings stand out on a
 * terminal unless NO_COLOR is set.
 */
#ifndef GM_TOOLS_SHOW_H
#define GM_TOOLS_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "recorder/snapshot/jsonw.h"

/* Does a character that a terminal obeys begin at @at? How many bytes it has; 0: it is no such character. */
static inline size_t gm_show_control(const char *at)
{
	return gm_utf8_control((const unsigned char *)at);
}

/* @text with '?' in place of each byte of those, cut to 1,023 bytes. Static memory of four calls. */
const char *gm_show_clean(const char *text);

/* The same of a path, of up to 4,095 bytes. Static memory. */
const char *gm_show_path(const char *path);

/* @number, or null where it is not known. */
static inline json_t *gm_show_number(bool known, int64_t number)
{
	return known ? json_integer(number) : json_null();
}

/* Write @json and a line end to @out; @indent as of gm_writer_indent, 0: one line. Gives up a reference to @json. NULL,
 * which json_pack returns where memory is short or a text is no UTF-8, writes nothing: gm_show_end then says so, and
 * fails. */
void gm_show_document(FILE *out, json_t *json, unsigned int indent);

/* Make @text, which may be cut within a character, UTF-8 again: what is left of one becomes '?'. Returns @text. */
char *gm_show_repair(char *text);

/* gm_show_clean, cut to at most @bytes, between two characters. */
const char *gm_show_cut(const char *text, size_t bytes);

/* The statistics of the devices of a snapshot, summed; of @device alone (a number; NULL: of all). @live and @peak are
 * bytes that were asked for, not those of the blocks that serve them; @reserved_peak is what was taken from the
 * driver. @ooms of all devices has the refused requests for pinned host memory, too. */
struct gm_totals { int64_t live, peak, reserved_peak, blocks, ooms; };
struct gm_totals gm_show_totals(const json_t *root, const char *device);

/* "2025-11-20 15:40:12 UTC", "" for 0. Static memory. */
const char *gm_show_time(int64_t time_us);

/* Bytes with a sign and a unit. Static memory of four calls. */
const char *gm_show_bytes(int64_t bytes);

/* "1 block", "5 blocks". Static memory of four calls. */
const char *gm_show_count(int64_t count, const char *one);

/* A module's number as its file's name, and as its path: from the snapshot's "modules". */
const char *gm_show_module(const json_t *root, int64_t module);
const char *gm_show_module_path(const json_t *root, int64_t module);

/* The device that an object names: "device 3", or "the host". Static memory. */
const char *gm_show_device(const json_t *object);

/* One operation that was in flight, in a line. */
struct gm_show_op {
	int64_t thread, size;
	uint64_t address;
	const char *action, *kind, *device;
	bool took_effect;
};
void gm_show_op(FILE *out, const struct gm_show_op *op);

/* May colours be used on @out? A terminal, TERM not "dumb", NO_COLOR not set. */
bool gm_show_in_color(FILE *out);

void gm_show_heading(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line on stderr for what takes over a second, only on a terminal: "@what: @done of @all", drawn over
 * itself from the second second on, at most 5 times a second. */
void gm_progress(const char *what, size_t done, size_t all);

/* Columns of the terminal that @out is, at least 40; SIZE_MAX: it is none, and a line has no end there. */
size_t gm_show_columns(FILE *out);

/* Take the line away. */
void gm_progress_end(void);

/* Seconds on CLOCK_MONOTONIC. */
double gm_show_now(void);

/* What gpumem exits with: done; the check failed, or something could not be written; wrong use; an input
 * that cannot be read. */
enum gm_exit { GM_EXIT_OK, GM_EXIT_FAILED, GM_EXIT_USAGE, GM_EXIT_INPUT };

/* Could all output of @verb be written? Returns the exit status @status, or GM_EXIT_FAILED after a message. */
int gm_show_end(const char *verb, int status);

/* @bytes in the largest unit that leaves it at 1 or more: "512 B", "1.50 KiB", "20.00 GiB".
 * Writes at most @room bytes, NUL included; 32 are always enough. */
void gm_units_bytes(uint64_t bytes, char *ret, size_t room);

/* Bytes from "512", "20MiB", "40GiB", "1.5GB" (KB, MB ... count 1024 too, as PyTorch's do).
 * Returns 0, or -EINVAL and @ret unchanged. */
int gm_units_parse(const char *text, uint64_t *ret);

/* A time in seconds: a number, which may have a unit (us, ms, s, min, h). Returns 0, or -EINVAL and @ret unchanged. */
int gm_units_time(const char *text, double *ret);

/* The moment that @time (gm_units_time) names, in microseconds since 1970: seconds after @origin_us; below 0, seconds
 * before @end_us; from 10^12 on, microseconds since 1970. */
int64_t gm_units_moment(double time, int64_t origin_us, int64_t end_us);

/* Seconds, from @least to @most. Returns 0, or -EINVAL when @text is none of these. */
int gm_units_seconds(const char *text, double least, double most, double *ret);

/* Numbers from a file may be anything: these sums wrap where they would overflow. */
static inline int64_t gm_wrap_add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t gm_wrap_subtract(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* Write @text and a newline to @out, where a line of @column characters has begun. Break lines between words at @width
 * characters, and begin each further line with @next. A longer word has a line of its own. Returns how many lines. */
unsigned int gm_show_wrapped(FILE *out, const char *text, int column, const char *next, size_t width);

/* The same of a whole line that printf's arguments make, at the width of the terminal: one line where there is none. */
void gm_show_line(FILE *out, const char *next, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- which frames of a stack do not tell who asked for memory ---------------------------------- */

/* Is a frame of the CUDA runtime or driver (linked in or not), of an allocator above it, or of this library? */
bool gm_stack_plumbing(const char *name, const char *module);

/* Is a Python file one that was installed, not the program's own? */
bool gm_stack_installed(const char *file);

/* Is it one that only runs the program: pytest and its plugins, unittest, runpy, the interpreter's own import? */
bool gm_stack_runner(const char *file);

/* Is the C++ function @name (not mangled) a step of PyTorch's backward? The steps run in threads of PyTorch's own,
 * without a line of Python: only this name tells them apart. What PyTorch calls the step ("AddmmBackward0") is at
 * *@ret_name, *@ret_length bytes. */
bool gm_stack_backward(const char *name, const char **ret_name, int *ret_length);

#endif
