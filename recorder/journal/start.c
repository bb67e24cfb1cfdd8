/*
 * start.c - the recorder's life: start, liveness, the helper's tick, the end.
 *
 * Owns gm_rec. Thread context: gm_recorder_start on the thread of the first CUDA call, once;
 * gm_recorder_hold_alive and gm_recorder_tick on the helper thread; the rest on any thread.
 * Signal context: gm_recorder_header.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "recorder/record/annotations.h"
#include "recorder/journal/budget.h"
#include "recorder/journal/clock.h"
#include "recorder/record/events.h"
#include "recorder/journal/identity.h"
#include "recorder/stacks/intern.h"
#include "recorder/journal/journal.h"
#include "recorder/journal/place.h"
#include "recorder/journal/state.h"
#include "recorder/modules/names.h"
#include "recorder/journal/sweep.h"
#include "recorder/journal/sys.h"
#include "recorder/record/threads.h"

#define REVIEW_NS UINT64_C(10000000)	/* wait for the journal lock; if it runs out, the next review catches up */

struct gm_recorder gm_rec;

/* Append a clause to the note, as far as there is room. */
static void say(struct gm_recorder_report *report, const char *what, const char *more)
{
	size_t n = strlen(report->note);

	snprintf(report->note + n, sizeof(report->note) - n, "%s%s%s", n ? "; " : "", what, more);
}

static void say_why_not(struct gm_recorder_report *report, enum gm_place_kind kind, int error)
{
	say(report, gm_place_name(kind), ": ");
	snprintf(report->note + strlen(report->note), sizeof(report->note) - strlen(report->note),
		 "%s", gm_error_text(error));
}

static void init_locks(void)
{
	gm_rec.journal = (struct gm_lock){ .rank = GM_RANK_JOURNAL };
	gm_rec.intern = (struct gm_lock){ .rank = GM_RANK_INTERN };
	gm_rec.shared = (struct gm_lock){ .rank = GM_RANK_SHARED_CHUNK };
	for (uint32_t d = 0; d < GM_DOMAINS; d++)
		gm_rec.domain[d].lock = (struct gm_lock){ .rank = GM_RANK_DOMAIN + d };
}

/* A robust, process-shared mutex, because the kernel marks such a mutex when its holder dies. */
static int init_alive(pthread_mutex_t *alive)
{
	pthread_mutexattr_t attr;
	int r = pthread_mutexattr_init(&attr);

	if (r)
		return -r;
	r = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	if (!r)
		r = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	if (!r)
		r = pthread_mutex_init(alive, &attr);
	pthread_mutexattr_destroy(&attr);
	return -r;
}

/* Other threads may already be recording. gm_journal_format has backed the area. */
static void set_settings(struct gm_header *header, const struct gm_recorder_config *config)
{
	struct gm_region *region = &header->regions[GM_REGION_SETTINGS];
	struct gm_setting *settings = (void *)(gm_rec.base + region->offset);

	for (unsigned int i = 0; i < config->settings_count; i++) {
		const struct gm_recorder_setting *s = &config->settings[i];
		uint64_t end = (i + 1) * sizeof(*settings);

		if (end > gm_get(&region->populated)) {
			gm_count(&region->refused, 1);
			return;
		}
		settings[i].name = gm_intern_string(s->name, (uint32_t)strlen(s->name));
		settings[i].value = gm_intern_string(s->value, (uint32_t)strlen(s->value));
		settings[i].source = gm_intern_string(s->source, (uint32_t)strlen(s->source));
		gm_set_release(&region->used, end);
	}
}

static int map_tables(void)
{
	static _Atomic(void *) lookup, slots;

	gm_rec.lookup = gm_table_once(&lookup, GM_USAGE_LOOKUP * sizeof(gm_rec.lookup[0]));
	gm_rec.slots = gm_table_once(&slots, GM_MAX_THREADS * sizeof(gm_rec.slots[0]));
	return gm_rec.lookup && gm_rec.slots ? 0 : -ENOMEM;
}

/* Fill in everything that must be set before another process may read the file as a journal. */
static int fill(struct gm_header *header, const struct gm_recorder_config *config,
		const struct gm_journal_map *map)
{
	int r = init_alive(&header->alive);

	if (r == 0)
		r = map_tables();
	if (r < 0)
		return r;
	gm_identity_fill(header);
	gm_text_copy(header->output, sizeof(header->output), config->output);
	gm_text_copy(header->gpumem_version, sizeof(header->gpumem_version), config->version);
	header->rank = config->rank;
	gm_set(&header->life, GM_LIFE_RUNNING);
	for (unsigned int d = 0; d < GM_DOMAIN_POOLS; d++)
		gm_rec.domains[d].stats.max_split_size = -1;
	gm_set(&gm_rec.domain_count, GM_DOMAIN_POOLS);
	init_locks();
	gm_history_begin(header, config);
	gm_annotations_begin(header->history_events);
	gm_rec.slots_used = 1;			/* slot 0 */
	gm_rec.copies = 0;
	gm_set(&gm_rec.caches, NULL);
	r = gm_chunks_begin(map->plan.chunks);
	return r < 0 ? r : gm_intern_begin();
}

/* Try one place. Returns 0 when gm_rec is ready except for its header. */
static int try_place(enum gm_place_kind kind, const struct gm_recorder_config *config,
		     struct gm_recorder_report *report)
{
	struct gm_journal_map map;
	struct gm_place place;
	int r = gm_place_open(kind, config->place, gm_identity_command(), &place);

	if (r < 0)
		return r;
	report->budget_bytes = gm_budget(place.free_bytes);
	r = report->budget_bytes < GM_BUDGET_LEAST ? -ENOSPC :
	    gm_journal_map(place.fd, report->budget_bytes, config->history_events, &map);
	if (r < 0)
		goto out_file;
	r = gm_journal_format(&map, report->budget_bytes);
	if (r < 0)
		goto out_unmap;
	gm_rec.device = place.device;
	gm_rec.inode = place.inode;
	gm_text_copy(gm_rec.directory, sizeof(gm_rec.directory), place.directory);
	gm_text_copy(gm_rec.name, sizeof(gm_rec.name), place.name);
	r = fill((struct gm_header *)(void *)map.base, config, &map);
	if (r < 0)
		goto out_begun;
	place.name[0] = '\0';			/* keep the file, close the descriptor */
	gm_place_undo(&place);
	if (place.ours)
		gm_sweep(place.directory);
	return 0;
out_begun:
	gm_chunks_end();
	gm_intern_end();
out_unmap:
	gm_sys.unmap(map.base, map.plan.file_bytes);
	gm_rec.name[0] = '\0';
out_file:
	gm_place_undo(&place);
	return r;
}

static void report_history(uint64_t wanted, struct gm_recorder_report *report)
{
	const struct gm_header *header = (const struct gm_header *)(void *)gm_rec.base;
	char what[96];

	if (header->history_events >= wanted)
		return;
	snprintf(what, sizeof(what), "history: cut to %llu events, there is no room for more",
		 (unsigned long long)header->history_events);
	say(report, what, "");
}

/* Try the places in order, and write into the note what the caller should print. A guarded process uses
 * memory only, because all programs of the user could open, read and write a file. */
static int find_place(const struct gm_recorder_config *config, struct gm_recorder_report *report)
{
	bool asked = config->place && *config->place, heard = false, guarded = gm_identity_guarded();
	int r = -ENOENT, kind;

	if (guarded)
		say(report, "this process is closed to its user's others (not dumpable, or capabilities)",
		    "");
	for (kind = guarded ? GM_PLACE_MEMFD : GM_PLACE_OPTION; kind < GM_PLACE_COUNT; kind++) {
		r = try_place((enum gm_place_kind)kind, config, report);
		if (r == 0)
			break;
		/* Report a place that does not exist only if the user named it. */
		if (r != -ENOENT || (kind == GM_PLACE_OPTION && asked))
			say_why_not(report, (enum gm_place_kind)kind, -r);
		heard = heard || (kind == GM_PLACE_OPTION && asked);
	}
	if (r < 0 && !report->note[0])
		say(report, "no place for the journal", "");
	if (r == 0 && kind == GM_PLACE_MEMFD)
		say(report, "the journal is in memory only, and dies with the process", "");
	else if (r == 0 && heard)
		say(report, "the journal is in ", gm_rec.directory);
	else if (r == 0)
		report->note[0] = '\0';		/* nothing is missing */
	return r;
}

int gm_recorder_start(const struct gm_recorder_config *config,
		      struct gm_recorder_report *ret_report)
{
	struct gm_clock_pair first;
	struct gm_fd_guard guard;
	struct gm_header *header;
	int saved_errno = errno, r;

	memset(ret_report, 0, sizeof(*ret_report));
	if (gm_header_get())
		return -EALREADY;
	gm_fd_guard_begin(&guard);
	gm_clock_init();
	first = gm_clock_read();
	r = find_place(config, ret_report);
	gm_fd_guard_end(&guard);
	errno = saved_errno;
	if (r < 0)
		return r;
	header = (struct gm_header *)(void *)gm_rec.base;
	report_history(config->history_events, ret_report);
	if (gm_rec.name[0])
		snprintf(ret_report->path, sizeof(ret_report->path), "%.767s/%.255s",
			 gm_rec.directory, gm_rec.name);
	gm_set_release(&gm_rec.header, header);
	set_settings(header, config);
	gm_clock_begin(&header->clock, &first);
	gm_set_release(&header->magic, GM_MAGIC);
	return 0;
}

bool gm_recorder_exposed(void)
{
	const struct gm_header *header = gm_header_get();

	/* Atomic, because another thread may be in gm_recorder_unlink. */
	return header && __atomic_load_n(&gm_rec.name[0], __ATOMIC_RELAXED) && header->uid == geteuid() &&
	       !gm_identity_dumpable();
}

void gm_recorder_unlink(void)
{
	struct gm_fd_guard guard;
	int saved_errno = errno;

	if (!gm_header_get() || !gm_rec.name[0])
		return;
	gm_fd_guard_begin(&guard);
	gm_place_remove(gm_rec.directory, gm_rec.name, gm_rec.device, gm_rec.inode);
	gm_fd_guard_end(&guard);
	__atomic_store_n(&gm_rec.name[0], '\0', __ATOMIC_RELAXED);
	errno = saved_errno;
}

struct gm_header *gm_recorder_header(void)
{
	return gm_header_get();
}

void gm_recorder_hold_alive(void)
{
	struct gm_header *header = gm_header_get();

	if (!header)
		return;
	/* The mutex is free, or an earlier helper thread of this process held it: EOWNERDEAD. */
	if (pthread_mutex_trylock(&header->alive) == EOWNERDEAD)
		pthread_mutex_consistent(&header->alive);
	gm_set_release(&header->has_helper, 1);
}

void gm_recorder_review(void)
{
	const struct gm_header *header = gm_header_get();
	uint64_t left, more;

	/* After a crash no file is opened. */
	if (!header || !gm_rec.limited || gm_get(&header->life) == GM_LIFE_CRASHED)
		return;
	left = gm_budget_cgroup_left();
	gm_set(&gm_rec.left, left);
	if (!gm_lock_within(&gm_rec.journal, REVIEW_NS))
		return;
	more = gm_rec.populated < gm_rec.budget_most ? gm_rec.budget_most - gm_rec.populated : 0;
	gm_rec.budget = gm_rec.populated + (left / 8 < more ? left / 8 : more);
	gm_unlock(&gm_rec.journal);
}

void gm_recorder_tick(void)
{
	struct gm_header *header = gm_header_get();

	if (!header)
		return;
	gm_recorder_review();
	gm_clock_refresh(&header->clock);
	gm_threads_sweep();
}

void gm_recorder_keep_up(void)
{
	struct gm_header *header = gm_header_get();

	do {
		if (gm_get(&gm_rec.review)) {
			gm_set(&gm_rec.review, 0);
			gm_recorder_review();
		}
	} while (header && gm_chunks_ahead(header));
}

/* Keep all threads out of their thread caches. The caller holds the domain locks. This includes threads without thread
 * caches, because they change the lines of pools (lives.h). A thread that would get its slot now gets none, because it
 * sees @copies. Returns false when a thread could not be kept out; from then on the waits are short. */
static bool hold_slots(uint64_t limit_ns, uint64_t patience, struct gm_held *held)
{
	bool all = true;

	for (uint32_t i = 1; i < atomic_load(&gm_rec.slots_used); i++) {
		if (gm_slot_hold(&gm_rec.slots[i], patience)) {
			held->slots[i / 64] |= UINT64_C(1) << i % 64;
			continue;
		}
		patience = limit_ns / 64;
		all = false;
	}
	return all;
}

bool gm_recorder_lock_all(uint64_t limit_ns, struct gm_held *ret_held)
{
	uint64_t patience = limit_ns;
	bool all = gm_header_get() != NULL;

	memset(ret_held, 0, sizeof(*ret_held));
	if (!all)
		return false;
	atomic_fetch_add(&gm_rec.copies, 1);
	ret_held->counted = true;
	for (uint32_t d = 0; d < GM_DOMAINS; d++) {
		ret_held->domain[d] = gm_lock_within(&gm_rec.domain[d].lock, patience);
		if (!ret_held->domain[d])
			patience = limit_ns / 64;
		all = all && ret_held->domain[d];
	}
	return hold_slots(limit_ns, patience, ret_held) && all;
}

void gm_recorder_unlock_all(const struct gm_held *held)
{
	for (uint32_t i = gm_get_acquire(&gm_rec.slots_used); i-- > 1;)
		if (held->slots[i / 64] >> i % 64 & 1)
			gm_set_release(&gm_rec.slots[i].tcache_owner, GM_TCACHE_NOBODY);
	for (uint32_t d = GM_DOMAINS; d-- > 0;)
		if (held->domain[d])
			gm_unlock(&gm_rec.domain[d].lock);
	if (held->counted)
		atomic_fetch_sub(&gm_rec.copies, 1);
}

bool gm_recorder_can_intern(uint64_t limit_ns)
{
	struct gm_lock *locks[] = { &gm_rec.intern, &gm_rec.journal };

	if (!gm_header_get())
		return false;
	for (unsigned int i = 0; i < 2; i++) {
		if (!gm_lock_within(locks[i], limit_ns))
			return false;
		gm_unlock(locks[i]);
	}
	return true;
}
