/*
 * names.h - the words that snapshots use for the numbers of the journal's format: PyTorch's word if there is one.
 *
 * Constant data; any context. A number out of range has the name "unknown", never NULL.
 */
#ifndef GM_RECORDER_NAMES_H
#define GM_RECORDER_NAMES_H

#include <stdbool.h>
#include <stdint.h>

const char *gm_kind_name(unsigned int kind);		/* enum gm_kind */
const char *gm_action_name(unsigned int action);	/* enum gm_action */
const char *gm_block_state_name(unsigned int state);	/* enum gm_block_state */
const char *gm_stat_name(unsigned int stat);		/* enum gm_stat_name */
const char *gm_pool_class_name(unsigned int pool);	/* enum gm_pool_class */
const char *gm_region_name(unsigned int region);	/* enum gm_region_id */
const char *gm_life_name(unsigned int life);		/* enum gm_life */

const char *gm_signal_name(int32_t signal);
/* Is @name a signal with which a user, a terminal or a job manager ends a healthy program? */
bool gm_signal_is_wish(const char *name);

/* Return the text of errno @error (or -@error) for errors of files and threads, as strerror does, but without
 * malloc, locale and message catalogues. */
const char *gm_error_text(int error);

/* Return the name of register @index of crash_registers; NULL past the last one. @machine: EM_X86_64 or
 * EM_AARCH64; NULL for any other. */
const char *gm_register_name(uint32_t machine, unsigned int index);

const char *gm_limit_name(unsigned int limit);		/* enum gm_limit; GM_LIMIT_NONE: the driver */

/* Return the name of a CUresult that a call for memory may return; "unknown" for any other. */
const char *gm_result_name(int32_t result);

#endif
