/*
 * hook_graph.h - what graphs with memory nodes hold on a device: one record a device.
 *
 * The driver keeps that memory for the graphs until it is trimmed; how much it is, only the driver
 * knows (RESERVED_MEM_CURRENT). It is asked after each call that may change it, once the process
 * has made a memory node.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_HOOK_GRAPH_H
#define GM_PRELOAD_HOOK_GRAPH_H

#include <stdint.h>

#include "preload/hooks/record.h"

/* A memory node of this device was made; 0xff: of one that we do not know. */
void gm_graph_node_made(uint8_t domain);

/* Has the process ever made a memory node? */
bool gm_graph_nodes(void);

/* Ask the driver what graphs hold now and record what changed; @caller as of gm_modules_caller, or
 * NULL. No operation of this thread may be under way. */
void gm_graph_refresh(const void *caller);

#endif
