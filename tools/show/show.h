/*
 * show.h - text for people: control characters from files become '?', and headings are bold on a terminal unless
 * NO_COLOR is set. One thread at a time, because most results lie in static memory.
 */
#ifndef GM_TOOLS_SHOW_H
#define GM_TOOLS_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "recorder/snapshot/jsonw.h"

/* Return the bytes of the control character at @at (gm_utf8_control); 0: another character is there. */
static inline size_t gm_show_control(const char *at)
{
	return gm_utf8_control((const unsigned char *)at);
}

/* Return @text, cut to 1,023 bytes, with '?' for each byte of a control character and for each byte that is not UTF-8.
 * The result lies in static memory and lasts until the fourth call after this one. */
const char *gm_show_clean(const char *text);

/* Return the same for a path of up to 4,095 bytes. The result lies in static memory until the next call. */
const char *gm_show_path(const char *path);

/* Return @number as JSON; null if the number is not @known. The caller owns the result. */
static inline json_t *gm_show_number(bool known, int64_t number)
{
	return known ? json_integer(number) : json_null();
}

/* Write @json and a newline to @out, with @indent blanks for each level (0: all in one line), and drop a reference to
 * @json. json_pack returns NULL if memory is short or a text is not UTF-8: for NULL write nothing, and let
 * gm_show_finish report the error. */
void gm_show_document(FILE *out, json_t *json, unsigned int indent);

/* Replace each byte of @text that is not UTF-8 by '?', for example those of a character that was cut. Returns @text. */
char *gm_show_repair(char *text);

/* Return gm_show_clean(@text), cut between two characters to at most @bytes. */
const char *gm_show_cut(const char *text, size_t bytes);

/* Does @device (NULL: all devices, a number, or "host") mean device @number, too? */
bool gm_show_is_device(const char *device, int64_t number);

/* Return the statistics of @device (a number, or "host"), or the sums over all devices (NULL). @live and @peak are
 * bytes that the program asked for, or the bytes of blocks in a snapshot that has only those; @reserved_peak is what
 * was taken from the driver. With NULL, @ooms includes the refused requests for pinned host memory. */
struct gm_totals { int64_t live, peak, reserved_peak, blocks, ooms; };
struct gm_totals gm_show_totals(const json_t *root, const char *device);

/* Return microseconds since 1970 as "2025-11-20 15:40:12 UTC"; "" if @time_us is 0 or less. Static memory. */
const char *gm_show_time(int64_t time_us);

/* Return @bytes with a unit, as "-1.50 KiB". Static memory, until the fourth call after this one. */
const char *gm_show_bytes(int64_t bytes);

/* Return "1 block", "5 blocks". Static memory, until the fourth call after this one. */
const char *gm_show_count(int64_t count, const char *one);

/* Return the file name of a module, by its number in the snapshot's "modules", cleaned; "(unknown)": none. Return its
 * path, not cleaned; "": none. */
const char *gm_show_module(const json_t *root, int64_t module);
const char *gm_show_module_path(const json_t *root, int64_t module);

/* Return the member "device" of @object as "device 3", or as "the host" if it is no number. Static memory. */
const char *gm_show_device(const json_t *object);

/* An operation in flight, and the function that prints it in a line. */
struct gm_show_op {
	int64_t thread, size;
	uint64_t address;
	const char *action, *kind, *device;
	bool took_effect;
};
void gm_show_op(FILE *out, const struct gm_show_op *op);

/* May colours be used on @out: is @out a terminal, TERM not "dumb", and NO_COLOR empty? */
bool gm_show_in_color(FILE *out);

void gm_show_heading(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print "@what: @done of @all" on stderr, if stderr is a terminal and the work has taken a second. Each line replaces
 * the one before, at most 5 times a second. */
void gm_progress(const char *what, size_t done, size_t all);

/* Return the columns of the terminal @out, 80 if the terminal reports none or less than 40; SIZE_MAX: @out is no
 * terminal, and lines are not wrapped. */
size_t gm_show_columns(FILE *out);

/* Erase the line of gm_progress. */
void gm_progress_end(void);

/* Return the seconds on CLOCK_MONOTONIC. */
double gm_show_now(void);

/* The exit statuses of gpumem: done; the check failed, or output could not be written; wrong use; unreadable input. */
enum gm_exit { GM_EXIT_OK, GM_EXIT_FAILED, GM_EXIT_USAGE, GM_EXIT_INPUT };

/* Flush stdout. Returns @status, or GM_EXIT_FAILED after a message if some output of @verb could not be written. */
int gm_show_finish(const char *verb, int status);

/* Write @bytes in the largest unit in which the number is 1 or more: "512 B", "1.50 KiB", "20.00 GiB".
 * At most @room bytes are written, NUL included; 32 are always enough. */
void gm_units_bytes(uint64_t bytes, char *ret, size_t room);

/* Read bytes, as "512", "20MiB", "40GiB" or "1.5GB" (a KB is 1024 bytes, as in PyTorch).
 * Returns 0, or -EINVAL and @ret unchanged. */
int gm_units_parse(const char *text, uint64_t *ret);

/* Read a time in seconds: a number, with a unit (us, ms, s, min, h) or without. Returns 0, or -EINVAL and @ret
 * unchanged. */
int gm_units_time(const char *text, double *ret);

/* In microseconds since 1970: the moment at which the times of tables begin (the start of the process or, if @snapshot
 * does not say that, its first event); the moment of its newest event. */
struct gm_snapshot;
int64_t gm_show_origin(const struct gm_snapshot *snapshot);
int64_t gm_show_newest(const struct gm_snapshot *snapshot);

/* Return the moment that @time (gm_units_time) means, in microseconds since 1970: @time seconds after gm_show_origin;
 * if @time is below 0, as many seconds before gm_show_newest; from 10^12 on, @time as it is. */
int64_t gm_show_moment(const struct gm_snapshot *snapshot, double time);

/* Read seconds, from @least to @most. Returns 0, or -EINVAL; *@ret may change in both cases. */
int gm_units_seconds(const char *text, double least, double most, double *ret);

/* Sums that wrap when they overflow, because numbers from a file may be anything. */
static inline int64_t gm_wrap_add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t gm_wrap_subtract(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* Write @text and a newline to @out, whose line has @column characters already. Break lines between words at @width
 * characters, and begin each further line with @next. A longer word gets a line of its own. Returns the number of
 * lines. */
unsigned int gm_show_wrapped(FILE *out, const char *text, int column, const char *next, size_t width);

/* Print as printf does, wrapped by gm_show_wrapped at the width of the terminal @out. Without a terminal, do not
 * wrap. */
void gm_show_line(FILE *out, const char *next, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- which frames of a stack do not tell who asked for memory ---------------------------------- */

/* Is a frame of the CUDA runtime or driver (linked in or not), of an allocator above them, or of this library? */
bool gm_frame_is_plumbing(const char *name, const char *module);

/* Was a Python file installed, so that it is not the program's own? */
bool gm_frame_is_installed(const char *file);

/* Does a Python file only run the program: pytest and its plugins, unittest, runpy, the interpreter's own import? */
bool gm_frame_is_runner(const char *file);

/* Is the C++ function @name (demangled) a step of PyTorch's backward? The steps run in threads of PyTorch's own,
 * without a line of Python, so only this name tells them apart. If so, *@ret_name points to PyTorch's name of the step
 * ("AddmmBackward0"), which has *@ret_length bytes. */
bool gm_frame_is_backward(const char *name, const char **ret_name, int *ret_length);

#endif
