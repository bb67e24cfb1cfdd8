/*
 * stats_table.h - PyTorch's memory_summary(): one device's statistics as a table, line by line.
 *
 * No stdio, no malloc; snprintf with integers and texts only. Any context that may call it.
 */
#ifndef GM_RECORDER_STATS_TABLE_H
#define GM_RECORDER_STATS_TABLE_H

#include "allocator/table.h"

/* Calls @line for each line, without its newline, at most 80 bytes. */
void gm_stats_table(const struct gm_stats *stats, int device,
		    void (*line)(void *arg, const char *text), void *arg);

#endif
