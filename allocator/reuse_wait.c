/*
 * reuse_wait.c - the host waits for epochs: as long as the driver would have had that thread wait.
 *
 * No lock is held over a wait; the epoch stays for its waiters.
 *
 * Thread context: any. Signal context: none. See reuse.h.
 */
#include <errno.h>
#include <stddef.h>

#include "allocator/reuse_internal.h"

/* The last frees of this thread that the driver would have waited at, for a few contexts. */
#define OWN 8u
static __thread struct { uint64_t stamp; uint32_t context; } own[OWN];

void gm_reuse_note_own(uint32_t context, uint64_t stamp)
{
	unsigned int at = 0;

	for (unsigned int i = 0; i < OWN; i++) {
		if (own[i].context == context && own[i].stamp) {
			own[i].stamp = stamp;
			return;
		}
		if (own[i].stamp < own[at].stamp)
			at = i;
	}
	own[at].context = context;
	own[at].stamp = stamp;
}

/* Contexts where a free of this thread's own, then or later, would have waited for the epoch. */
static size_t contexts_of(const struct gm_reuse *reuse, const struct gm_reuse_epoch *epoch,
			  uint32_t contexts[OWN], bool *ret_any)
{
	size_t count = 0;

	for (unsigned int i = 0; i < OWN; i++)
		if (own[i].stamp >= epoch->stamp)
			contexts[count++] = own[i].context;
	*ret_any = !gm_rule(GM_RULE_WAIT_OWN) && reuse->freed_stamp >= epoch->stamp;
	return count;
}

/* The oldest epoch that may be waited for: then the ones before it are complete too. */
static struct gm_reuse_epoch *choose(struct gm_reuse *reuse, uint32_t contexts[OWN],
				     size_t *ret_count, bool *ret_any, uint64_t *ret_ticket)
{
	struct gm_reuse_epoch *epoch;

	if (!gm_lock(&reuse->limbo))
		return NULL;
	for (epoch = reuse->oldest; epoch; epoch = epoch->next) {
		if (epoch->late && gm_rule(GM_RULE_WAIT_SEALED))
			continue;
		*ret_count = contexts_of(reuse, epoch, contexts, ret_any);
		if (!*ret_count && !*ret_any)
			continue;
		epoch->waiters++;
		*ret_ticket = epoch->ticket;
		break;
	}
	gm_unlock(&reuse->limbo);
	return epoch;
}

/* Returns whether it is complete. */
static bool give_up_waiting(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch)
{
	uint64_t ticket = 0;
	bool gone;

	if (!gm_lock(&reuse->limbo))
		return false;
	gone = epoch->gone;
	if (!--epoch->waiters && gone) {
		ticket = epoch->ticket;
		gm_reuse_spare_epoch_locked(reuse, epoch);
	}
	gm_unlock(&reuse->limbo);
	if (ticket)
		reuse->ops.drop(reuse->ops.arg, ticket);
	return gone;
}

int gm_reuse_wait(struct gm_reuse *reuse)
{
	uint32_t contexts[OWN];
	uint64_t ticket, vain = reuse->vain;
	struct gm_reuse_epoch *epoch;
	size_t count, done;
	bool any, gone;
	int r;

	if (!reuse->items)
		return -ENOENT;
	if (gm_reuse_poll_all(reuse))
		return 0;
	epoch = choose(reuse, contexts, &count, &any, &ticket);
	if (!epoch)
		return -ENOENT;
	r = 0;
	if (ticket)
		r = reuse->ops.wait(reuse->ops.arg, ticket,
				    any || !gm_rule(GM_RULE_WAIT_CONTEXT) ? NULL : contexts,
				    count);
	done = gm_reuse_poll_all(reuse);
	gone = give_up_waiting(reuse, epoch);
	if (!done && reuse->vain != vain)
		return -ETIMEDOUT;
	if (!r && !gone)		/* it was waited for, but its event does not say so */
		return -EIO;
	return r == -EBUSY ? -ENOENT : r;
}

size_t gm_reuse_wait_all(struct gm_reuse *reuse)
{
	uint64_t before = reuse->completed, until = reuse->stamp, stamp = 0;

	/* Not what others free while we wait. */
	while (!gm_reuse_wait(reuse)) {
		if (!gm_lock(&reuse->limbo))
			break;
		stamp = reuse->oldest ? reuse->oldest->stamp : UINT64_MAX;
		gm_unlock(&reuse->limbo);
		if (stamp > until)
			break;
	}
	return (size_t)(reuse->completed - before);
}

/* ---- before "out of memory" is said ------------------------------------------------------------ */

uint64_t gm_reuse_stamp(struct gm_reuse *reuse)
{
	return reuse->stamp;
}

uint64_t gm_reuse_completed(struct gm_reuse *reuse)
{
	return reuse->completed;
}

int gm_reuse_waits(struct gm_reuse *reuse, uint64_t stamp)
{
	const struct gm_reuse_epoch *open;
	int r = 0;

	if (!reuse->items || !gm_lock(&reuse->limbo))
		return 0;
	open = reuse->closing ? reuse->closing : reuse->open;
	if (reuse->oldest && reuse->oldest->stamp <= stamp)
		r = 1;
	else if (!reuse->oldest && open && open->chunks && open->stamp <= stamp)
		r = gm_reuse_holds_locked(reuse) ? -EAGAIN : 1;
	gm_unlock(&reuse->limbo);
	return r;
}

uint64_t gm_reuse_progress(struct gm_reuse *reuse)
{
	uint64_t completed = reuse->completed, ticket = 0;
	struct gm_reuse_epoch *epoch;
	uint32_t contexts = 0;

	if (!gm_lock(&reuse->limbo))
		return completed;
	epoch = reuse->oldest;
	if (epoch) {
		epoch->waiters++;
		ticket = epoch->ticket;
	}
	gm_unlock(&reuse->limbo);
	if (ticket)
		contexts = reuse->ops.progress(reuse->ops.arg, ticket);
	if (epoch)
		give_up_waiting(reuse, epoch);
	return completed << 16 | (contexts & 0xffffu);
}
