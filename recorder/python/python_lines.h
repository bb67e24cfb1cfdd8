/*
 * python_lines.h - from an instruction of a code object to its line, by the tables of CPython
 * 3.8 to 3.13. Internal to recorder/python*.c; any context.
 */
#ifndef GM_RECORDER_PYTHON_LINES_H
#define GM_RECORDER_PYTHON_LINES_H

#include <stddef.h>
#include <stdint.h>

/* The line of the instruction @at bytes into the code; @table holds @bytes bytes, @first is the
 * line that the code begins with (and what a frame that has not begun is at, @at < 0). Read with
 * gm_probe_copy, as far as needed. 0: it has none, or the table cannot be read. */
uint32_t gm_python_line(unsigned int minor, uintptr_t table, size_t bytes, uint32_t first,
			int64_t at);

#endif
