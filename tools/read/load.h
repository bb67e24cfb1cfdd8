/*
 * load.h - whatever a verb is given, as one parsed snapshot: a snapshot's JSON, a journal, the pid
 * of a living process, or a snapshot of PyTorch (pickle or JSON). Each is made into the JSON that a
 * snapshot of it would be, so that every verb reads one thing. Equal texts and numbers in it are
 * shared: change none.
 *
 * Nothing in the input is trusted. Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_LOAD_H
#define GM_TOOLS_LOAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_value;
struct gm_values;

struct gm_loaded {
	json_t *root;			/* an object, its large parts aside (bulk.h); gm_load_free */
	enum { GM_LOADED_SNAPSHOT, GM_LOADED_JOURNAL, GM_LOADED_PROCESS, GM_LOADED_TORCH } from;
	const struct gm_value *torch;	/* of gm_load_as_said: what a PyTorch snapshot said, all of it */
	struct gm_values *values;	/* where that, or what the root has aside, lies */
	bool as_said, tables_only;	/* see gm_load_as_said, gm_load_tables */
	char error[512];		/* why it could not be read, one sentence */
};

/* Load @word: a path, "-" (a snapshot on standard input), or digits that are no file: a pid.
 * Returns 0, or -errno and @ret->error. */
int gm_load(const char *word, struct gm_loaded *ret);

/* The same, but of a snapshot of PyTorch only what it said: @torch, and no @root. */
int gm_load_as_said(const char *word, struct gm_loaded *ret);

/* The same, but of a living process without its events: for those who look often. */
int gm_load_tables(const char *word, struct gm_loaded *ret);
void gm_load_free(struct gm_loaded *loaded);

/* Settle the copy of a journal in @fd and parse the JSON of it; as gm_load. */
struct gm_copy;
int gm_load_journal(const struct gm_copy *copy, const char *reason, bool recovered,
		  struct gm_loaded *ret);

/* What an object has under a key, when it is of that type; 0, "" or an empty list otherwise. (The
 * last two make jansson's of a large part that is asked for: see bulk.h.) */
int64_t gm_json_number(const json_t *object, const char *key);
const char *gm_json_text(const json_t *object, const char *key);
const json_t *gm_json_list(const json_t *object, const char *key);
const json_t *gm_json_object(const json_t *object, const char *key);

#endif
