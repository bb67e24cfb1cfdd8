/*
 * pages.h - memory in large pages, for tables that are read all over: a walk through the page
 * tables costs more than the memory itself. Any thread.
 */
#ifndef GM_TOOLS_PAGES_H
#define GM_TOOLS_PAGES_H

#include <stddef.h>

/* @bytes of zeros, in large pages where the system has some and where they fill one; taken as they
 * are touched. NULL: out of memory. gm_pages_free takes the same @bytes; of NULL it does nothing. */
void *gm_pages_new(size_t bytes);
void gm_pages_free(void *pages, size_t bytes);

#endif
