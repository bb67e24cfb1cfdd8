/*
 * waiting.h - between the files of waiting work (waiting.c, memop.c, hang.c), and what the race
 * detector, captures and graphs need of them. All under fc.lock.
 */
#ifndef FC_WAITING_H
#define FC_WAITING_H

#include "test/fakecuda/state.h"

enum fc_until {		/* FC_UNTIL_EQ .. _GEQ are enum fakecuda_wait */
	FC_UNTIL_EQ, FC_UNTIL_NE, FC_UNTIL_GEQ,
	FC_UNTIL_AND,	/* (*ptr & value) != 0 */
	FC_UNTIL_NOR	/* ~(*ptr | value) != 0 */
};

struct fc_word {
	uint64_t ptr;
	uint64_t value;
	unsigned int width;	/* 4 or 8 bytes */
	enum fc_until until;
};

/* fc_word_find - where the word at @ptr lies now; NULL: not in live memory, or not aligned. */
void *fc_word_find(uint64_t ptr, unsigned int width);
uint64_t fc_word_load(const void *p, unsigned int width);
bool fc_word_meets(const struct fc_word *word, uint64_t is);

/* fc_word_describe - "word 0x7f.. is 0, wanted 1". */
void fc_word_describe(const struct fc_word *word, char *buf, size_t size);

/* Stream memory operations as one work, for streams and graph nodes: checked and copied. @name as
 * for fc_work_new. */
CUresult fc_work_memop(struct fc_ctx *ctx, const char *name, unsigned int count,
		       const CUstreamBatchMemOpParams *params, unsigned int flags,
		       struct fc_work **ret_work);
/* fc_memop_waits - does @w wait for a word at all? */
bool fc_memop_waits(const struct fc_work *w);
/* fc_memop_pending - the word @op stands at, waiting. False: it does not wait. */
bool fc_memop_pending(const struct fc_op *op, struct fc_word *ret_word);

/* semaphore.c */
bool fc_semaphore_waits(const struct fc_work *w);
void fc_semaphore_describe(const struct fc_work *w, char *buf, size_t size);

/* fc_waiting_committed - @op's dependencies are final: what later launches may overlap. */
void fc_waiting_committed(struct fc_op *op);
/* fc_waiting_stream_ended - @s takes no more work. */
void fc_waiting_stream_ended(struct fc_stream *s);

/* fc_waiting_describe - why @op has not ended, in words. */
void fc_waiting_describe(const struct fc_op *op, char *buf, size_t size);
void fc_hang_reset(void);

/* race.c: @s's handle goes; its work may still be under way. */
void fc_race_stream_destroyed(struct fc_stream *s);

#endif
