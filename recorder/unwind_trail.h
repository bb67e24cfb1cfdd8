/*
 * unwind_trail.h - a walk that does not begin anew: each thread's last one is kept, and where the
 * next comes to a frame that it had, the rest is followed by what is known of it. The frames before
 * that were often met further back: paths of them are kept, by the frame that each begins with
 * (unwind_path.h), and followed in the same way.
 *
 * A walk from a frame on is a function of (pc, sp, fp) there and of the words that it reads: return
 * addresses and saved frame pointers. So a frame with the same pc and sp, whose every word outwards
 * is read again and found to be what it was, has the same frames outwards; at the first word that
 * differs it is unwound again from there. The hash of the frames is kept with them, of each suffix:
 * what is followed is not hashed again.
 *
 * Only of a thread's own stack (recorder/window.h), and of frames that the rules in words undo: a
 * walk through a signal handler, on a fibre, cut, or over all registers is gm_unwind's.
 *
 * Thread context: any, takes no lock. Signal context: any; a handler that interrupts a walk is told
 * to take gm_unwind. Fork: gm_trail_forget.
 */
#ifndef GM_RECORDER_UNWIND_TRAIL_H
#define GM_RECORDER_UNWIND_TRAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind.h"
#include "recorder/unwind_recipe.h"

struct gm_trail;

struct gm_trail_walk {
	struct gm_trail *trail;
	const uintptr_t *pcs;		/* as gm_unwind gives them, until gm_trail_leave */
	int count;
	unsigned int flags;		/* GM_UNWIND_MORE or none */
};

/* Walk from @from, @max frames at most (up to GM_TRAIL_MOST). Returns false, and nothing to leave,
 * where gm_unwind is to be taken. */
#define GM_TRAIL_MOST 264
bool gm_trail_walk(const struct gm_regs *from, int max, struct gm_trail_walk *ret_walk);
void gm_trail_leave(const struct gm_trail_walk *walk);

/* The same in steps: enter (false: nothing to leave, gm_unwind is to be taken), walk or not (false:
 * as before), leave. */
bool gm_trail_enter(const struct gm_regs *from, struct gm_trail_walk *ret_walk);
bool gm_trail_walk_on(const struct gm_regs *from, int max, struct gm_trail_walk *walk);

/* Of who has entered: the recipe of the stack at @key (unwind_recipe.h), NULL if none is known. When
 * it has been used, gm_trail_met. */
struct gm_recipe *gm_trail_recall(const struct gm_trail_walk *walk, struct gm_recipe_key *key);
struct gm_recipe *gm_trail_recall_like(const struct gm_trail_walk *walk,
				       const struct gm_recipe *recipe, uint64_t inside,
				       uint64_t value);
void gm_trail_met(const struct gm_trail_walk *walk, struct gm_recipe *recipe);

/* Have a recipe of @stack, however it was walked, and it was met. @key: as gm_trail_recall left it. */
void gm_trail_remember(const struct gm_trail_walk *walk, const struct gm_recipe_key *key,
		       const struct gm_recipe_stack *stack);

/* gm_trail_hash_of @count frames of @walk from the frame @first on. */
uint64_t gm_trail_hash(const struct gm_trail_walk *walk, int first, int count);

/* The hash of frames: a polynomial in GM_TRAIL_BASE over what each is mixed to. */
uint64_t gm_trail_hash_of(const uintptr_t *pcs, int count);

/* The path that @walk began with, by a number; 0 none. And before @walk is left: the path, if any, that
 * this thread's next walk will probably begin with. */
uint32_t gm_trail_path(const struct gm_trail_walk *walk);
void gm_trail_expect(const struct gm_trail_walk *walk, uint32_t path);

/* In a forked or cloned child: what other threads were doing is not going on. */
void gm_trail_forget(void);

/* GM_RECIPE_ROOM bytes for who has entered, zero at first; NULL: none yet. They may have been another
 * thread's before. */
void *gm_trail_room(const struct gm_trail_walk *walk);

/* Frames that were followed instead of unwound, and walks that a recipe made unnecessary, for tests and
 * benchmarks: of this thread. */
uint64_t gm_trail_followed(void);
uint64_t gm_trail_recalled(void);

#endif
