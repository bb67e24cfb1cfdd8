/*
 * symbolize_module.h - one module's frames: for the worker of symbolize_worker.h alone. Single-threaded.
 */
#ifndef GM_TOOLS_SYMBOLIZE_MODULE_H
#define GM_TOOLS_SYMBOLIZE_MODULE_H

#include "tools/symbols/symbolize_worker.h"

/* @level is called for each level that was found. Returns "" or why not all was. */
struct gm_sym_say {
	void (*level)(void *arg, uint32_t frame, const struct gm_sym_level *level);
	void *arg;
};
const char *gm_symbolize_module(const struct gm_sym_request *request,
				const struct gm_sym_module *module, bool dwarf,
				const struct gm_sym_say *say);

#endif
