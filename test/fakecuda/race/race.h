/*
 * race.h - between the files of the race detector. All under fc.lock.
 *
 *   race.c          what comes before what: operations, streams, the host's syncs
 *   race_clock.c    vector clocks and lanes          race_host.c    what the host knows
 *   race_word.c     order by words and keys          race_life.c    blocks and their lives
 *   race_access.c   who touched which bytes, rules   race_tree.c    ranges of addresses
 *   race_report.c   what was found, the environment
 */
#ifndef FC_RACE_H
#define FC_RACE_H

#include "test/fakecuda/stream/waiting.h"

/* ---- race_clock.c ---- */

/* What is known to have happened: for each lane, the last of its operations. Operations of one
 * lane end in order, so that knowing one is knowing all before it. */
struct race_vc {
	uint32_t n;
	uint64_t *epoch;
};

void race_vc_join(struct race_vc *into, const struct race_vc *from);
void race_vc_set(struct race_vc *vc, uint32_t lane, uint64_t epoch);
void race_vc_free(struct race_vc *vc);

static inline bool race_vc_knows(const struct race_vc *vc, uint32_t lane, uint64_t epoch)
{
	return lane < vc->n && vc->epoch[lane] >= epoch;
}

/* race_lane_next - the lane and epoch of something new that knows @vc at its end. @preferred: its
 * stream's lane + 1, or 0; *ret_lane is a lane of nobody's where that one does not fit. */
uint64_t race_lane_next(const struct race_vc *vc, uint32_t preferred, uint32_t *ret_lane);
/* race_lane_own - a new lane for a host; race_lane_claim - one that only its new owner continues;
 * race_lane_disown - anybody may again. */
uint32_t race_lane_own(void);
void race_lane_claim(uint32_t lane);
void race_lane_disown(uint32_t lane);
uint32_t race_lane_count(void);
void race_clock_reset(void);

/* ---- race_tree.c: ranges of addresses, with overlap ---- */

struct race_node {
	struct race_node *left, *right;
	uint32_t prio;
	uint64_t start, end, max_end;
};

struct race_tree {
	struct race_node *root;
	size_t count;
};

void race_tree_add(struct race_tree *t, struct race_node *n);
void race_tree_remove(struct race_tree *t, struct race_node *n);
/* race_tree_find - those that overlap [@start, @end), in order; valid until the next call. */
struct race_node **race_tree_find(const struct race_tree *t, uint64_t start, uint64_t end,
				  size_t *ret_n);
void race_tree_reset(void);

/* ---- race_life.c ---- */

/* One lifetime of a block of memory: from when it was handed out to when it was taken back. */
struct race_block {
	struct race_node node;
	uint64_t life;		/* never reused */
};

/* race_block_at - the bytes around @ptr that belong together: a noted block, the rest of a driver's
 * allocation around it. False: memory that nobody has announced. */
bool race_block_at(uint64_t ptr, uint64_t *ret_start, uint64_t *ret_end, uint64_t *ret_life);
/* race_life_begin - @a is handed out (again); its noted blocks are gone. */
void race_life_begin(struct fc_alloc *a);
/* race_life_forget - no noted block is left in [@start, @end). */
void race_life_forget(uint64_t start, uint64_t end);
void race_life_reset(void);

/* ---- race_host.c ---- */

/* race_host_vc - what the calling host thread knows, or what all of them know. */
struct race_vc *race_host_vc(void);
/* race_host_learn - it has seen that @vc has happened. */
void race_host_learn(const struct race_vc *vc);
/* race_host_all - what any host thread knows is joined into @into. */
void race_host_all(struct race_vc *into);
/* race_host_separate - do host threads know different things? */
bool race_host_separate(void);
/* Where threads are separate, whoever allocates knows what those knew that freed before. */
void race_host_release(void);
void race_host_acquire(void);
void race_host_reset(void);

/* ---- race.c ---- */

enum race_kind {
	RACE_READ,
	RACE_WRITE,
	RACE_USE,	/* by a kernel: at @point, and who knows where else in the block */
	RACE_WORD,	/* what waits and signals are made of */
	RACE_FREE	/* stream-ordered free */
};

struct race_use {
	uint64_t start, end, point, life;
	enum race_kind kind;
	bool late;	/* after the word that its kernel waits for has changed */
};

struct race_op {
	unsigned int refs;
	struct fc_op *op;	/* NULL once it is gone, which it is only when DONE */
	uint64_t seq, ctx_id, stream_id;
	char name[48];
	bool stream_legacy;
	uint32_t lane;
	uint64_t epoch;
	/* What precedes its start; what precedes its end, itself included. Before start_ok and
	 * end_ok: what is known of that so far. */
	struct race_vc start, end;
	bool start_ok, end_ok, waits;
	struct race_use *uses;
	size_t n_uses;
	uint64_t reported_with;		/* seq of the last one reported together with it */
	struct race_op *next, **prevp;	/* not both start_ok and end_ok, in submission order */
};

struct race_op *race_op_new(void);	/* refs 1; NULL: no memory, and the detector is off */
struct race_op *race_op_get(struct race_op *ro);
void race_op_put(struct race_op *ro);
bool race_on(void);
/* race_op_use - @ro uses [@start, @end) of one block, in one of its lives. */
struct race_use *race_op_use(struct race_op *ro, uint64_t start, uint64_t end, uint64_t life,
			     enum race_kind kind);
/* race_op_range - the same for any range: for each block that it lies in, where any does. */
void race_op_range(struct race_op *ro, uint64_t start, uint64_t end, enum race_kind kind);
/* race_unresolved - operations whose start is not known to be ordered yet, in order. */
struct race_op *race_unresolved(void);
/* race_broken - no memory: the detector is off from here on. */
void race_broken(void);

/* race_of - @op's; made if there is none. NULL: no memory. */
struct race_op *race_of(struct fc_op *op);
/* race_resolve_all - a wait for a word is over: judge what came after it. */
void race_resolve_all(void);

/* ---- race_word.c ---- */

void race_word_reset(void);

/* ---- race_access.c ---- */

/* race_access_start - @ro, which knows @ro->start, uses @use: check it against all before, and
 * enter it. race_access_end - what could not be judged before @ro->end was known. */
void race_access_start(struct race_op *ro, const struct race_use *use);
void race_access_end(struct race_op *ro, const struct race_use *use);
/* race_access_freed - the memory goes away, by a host that knows @vc, in call @by. */
void race_access_freed(uint64_t start, uint64_t end, const struct race_vc *vc, const char *by);
void race_access_drop(uint64_t start, uint64_t end);
/* race_access_prune - everything to come knows @vc: forget what cannot matter any more. */
void race_access_prune(const struct race_vc *vc);
/* race_access_writers - join into @into what the operations know that wrote the word at @ptr and
 * have ended. */
void race_access_writers(uint64_t ptr, struct race_vc *into);
/* race_access_frees - the same for stream-ordered frees in the range; those of nothing else are
 * then forgotten. */
void race_access_frees(uint64_t start, uint64_t end, struct race_vc *into);
size_t race_access_count(void);
void race_access_reset(void);

/* ---- race_report.c ---- */

bool race_config_off(void);
bool race_config_threads(void);
/* race_report - @a, which came first, and @b (NULL: the host, in call @by) break a rule. */
void race_report(const char *rule, struct race_op *a, const struct race_use *a_use,
		 const struct race_op *b, const struct race_use *b_use, const char *by);
size_t race_report_count(void);
void race_report_reset(void);

#endif
