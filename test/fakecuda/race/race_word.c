/*
 * race_word.c - order that the driver cannot see in its own objects: words in memory that work
 * waits for and work writes, and keys that the program names.
 *
 * Whoever writes leaves what it knows under the word's address; whoever sees it takes that up. All
 * under fc.lock; the control calls take it.
 */
#include "test/fakecuda/race/race.h"

#include <stdlib.h>

/* Knowledge left under a key by whoever wrote a word or released a key of the program's. */
enum key_type { KEY_WORD, KEY_OBJECT, KEY_USER };

#define BUCKETS 256

struct keyed {
	enum key_type type;
	uint64_t key;
	uint64_t value;		/* of a word, as last written by a stream */
	struct race_vc vc;
	struct keyed *next;
};

static struct keyed *buckets[BUCKETS];

static struct keyed *key_get(enum key_type type, uint64_t key, bool make)
{
	struct keyed **bucket = &buckets[(key >> 2) % BUCKETS], *k;

	for (k = *bucket; k; k = k->next)
		if (k->type == type && k->key == key)
			return k;
	if (!make)
		return NULL;
	k = calloc(1, sizeof(*k));
	if (!k) {
		race_broken();
		return NULL;
	}
	k->type = type;
	k->key = key;
	k->next = *bucket;
	*bucket = k;
	return k;
}

void race_word_reset(void)
{
	for (size_t i = 0; i < BUCKETS; i++)
		while (buckets[i]) {
			struct keyed *k = buckets[i];

			buckets[i] = k->next;
			race_vc_free(&k->vc);
			free(k);
		}
}

/* ---- words ---- */

static uint64_t value_now(uint64_t ptr)
{
	const void *p = fc_word_find(ptr, 4);

	return p ? fc_word_load(p, 4) : 0;
}

/* Who wrote the word that lets @op go on? A stream, other work, or else the host. */
void fc_race_word_seen(struct fc_op *op, uint64_t ptr)
{
	struct race_op *ro = op->race;
	const struct keyed *written;
	const struct fc_alloc *a;

	if (!race_on() || !ro)
		return;
	written = key_get(KEY_WORD, ptr, false);
	if (written)
		race_vc_join(&ro->end, &written->vc);
	race_access_writers(ptr, &ro->end);
	a = fc_alloc_find(ptr);
	if (a && a->readable_by_host && (!written || written->value != value_now(ptr)))
		race_host_all(&ro->end);
}

void fc_race_word_written(struct fc_op *op, uint64_t ptr)
{
	const struct race_op *ro = op->race;
	struct keyed *word;

	if (!race_on() || !ro)
		return;
	word = key_get(KEY_WORD, ptr, true);
	if (!word)
		return;
	word->value = value_now(ptr);
	race_vc_join(&word->vc, &ro->end);
}

void fc_race_object_signalled(struct fc_op *op, const void *object)
{
	const struct race_op *ro = op->race;
	struct keyed *k = race_on() && ro ? key_get(KEY_OBJECT, (uintptr_t)object, true) : NULL;

	if (k)
		race_vc_join(&k->vc, &ro->end);
}

void fc_race_object_seen(struct fc_op *op, const void *object)
{
	struct race_op *ro = op->race;
	const struct keyed *k = race_on() && ro ? key_get(KEY_OBJECT, (uintptr_t)object, false) :
						  NULL;

	if (k)
		race_vc_join(&ro->end, &k->vc);
}

void fc_race_wait_over(struct fc_op *op)
{
	struct race_op *ro = op->race;

	if (!race_on() || !ro || !ro->waits)
		return;
	if (op->work->wait)
		fc_race_word_seen(op, op->work->wait->ptr);
	ro->waits = false;
	race_resolve_all();
}

/* ---- the program's keys ---- */

FC_EXPORT void fakecuda_note_release(const void *key)
{
	const struct race_op *inside;
	struct keyed *k;

	fc_enter_control();
	k = race_on() ? key_get(KEY_USER, (uintptr_t)key, true) : NULL;
	inside = fc_tls.host_op ? fc_tls.host_op->race : NULL;
	if (k && !fc_tls.host_op)
		race_vc_join(&k->vc, race_host_vc());
	else if (k && inside)
		race_vc_join(&k->vc, &inside->start);
	fc_leave_control();
}

FC_EXPORT void fakecuda_note_acquire(const void *key)
{
	const struct keyed *k;

	fc_enter_control();
	k = race_on() ? key_get(KEY_USER, (uintptr_t)key, false) : NULL;
	if (k && !fc_tls.host_op)
		race_host_learn(&k->vc);
	fc_leave_control();
}
