/*
 * explain_say.c - why memory ran out and what to change, in sentences that claim no more than is known: see explain.h.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/explain.h"
#include "tools/show/show.h"

#define SITE_MOST 72u		/* columns of a call site in a sentence */
#define MANY 100			/* blocks of one call site: perhaps a leak */

static void say(char *to, size_t room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void say(char *to, size_t room, const char *format, ...)
{
	size_t length = strlen(to);
	va_list args;

	va_start(args, format);
	vsnprintf(to + length, room - length, format, args);
	va_end(args);
}

#define WHY(...) say(ret->why, sizeof(ret->why), __VA_ARGS__)
#define CHANGE(...) say(ret->change, sizeof(ret->change), __VA_ARGS__)

/* ---- why ------------------------------------------------------------------------------------- */

static void say_who(const struct gm_scene *scene, const struct gm_facts *facts,
		    struct gm_explanation *ret)
{
	char site[1024], fit[GM_SITE_FIT];

	if (facts->stack <= 0)
		WHY("%s", facts->module[0] ? facts->module : "the program");
	else
		WHY("%s", gm_site_fit(gm_site_text(&scene->stacks, facts->stack, site, sizeof(site)), SITE_MOST, fit));
	WHY(" asked for %s", gm_show_bytes(facts->asked));
	if (facts->device == GM_ROW_HOST) {
		WHY(" of pinned host memory, and the driver refused it. ");
		return;
	}
	if (facts->limit <= 0 && facts->needed != facts->asked && facts->asked <= facts->free)
		WHY(" (%s of the driver)", gm_show_bytes(facts->needed));
	WHY(" on device %d, where %s were free: ", facts->device, gm_show_bytes(facts->free));
}

static const char *fraction_in(const char *conf)
{
	const char *at = strstr(conf, "per_process_memory_fraction:");
	static char text[32];

	text[0] = '\0';
	if (at)
		snprintf(text, sizeof(text), " (%.*s here)",
			 (int)strspn(at + 28, "0123456789.") % 16, at + 28);
	return text;
}

static void say_limit(const struct gm_facts *facts, struct gm_explanation *ret)
{
	if (facts->torch) {
		WHY("that would have fitted. PyTorch refuses by itself what goes past "
		    "torch.cuda.set_per_process_memory_fraction() or per_process_memory_fraction of "
		    "PYTORCH_CUDA_ALLOC_CONF%s; it had %s.", fraction_in(facts->conf),
		    gm_show_bytes(gm_facts_torch_held(facts)));
		return;
	}
	WHY("refused by a limit that was set for this process, %s%s. It allows %s; %s were taken",
	    strncmp(facts->refused_by, "gpumem_", 7) ? "option " : "",
	    gm_show_clean(facts->refused_by), gm_show_bytes(facts->limit),
	    gm_show_bytes(facts->limit_used));
	if (facts->cached > 0)
		WHY(", with %s that lay idle in the cache in pieces", gm_show_bytes(facts->cached));
	if (facts->needed != facts->asked)
		WHY("; a request of this size takes %s", gm_show_bytes(facts->needed));
	WHY(".");
}

/* Is rounding at least 1% of the live bytes? */
static bool rounding_matters(const struct gm_facts *facts)
{
	return facts->rounding > 0 && facts->rounding >= facts->live / 100;
}

static void say_held(const struct gm_facts *facts, struct gm_explanation *ret)
{
	WHY(" The program itself held %s", gm_show_bytes(facts->live));
	if (rounding_matters(facts))
		WHY(", of which %s is rounding: blocks are larger than what was asked for",
		    gm_show_bytes(facts->rounding));
	WHY(".");
}

static void say_idle(const struct gm_facts *facts, struct gm_explanation *ret)
{
	if (facts->largest >= facts->asked)
		WHY("%s too little, while %s lay idle in the cache (the largest piece: %s), but "
		    "belonged to another stream, context or pool, so it could not serve this request",
		    gm_show_bytes(gm_facts_missing(facts)), gm_show_bytes(facts->cached),
		    gm_show_bytes(facts->largest));
	else
		WHY("%s too little, while %s lay idle in the cache in pieces that are too small",
		    gm_show_bytes(gm_facts_missing(facts)), gm_show_bytes(facts->cached));
	if (facts->largest > 0 && facts->largest < facts->asked)
		WHY(" (the largest: %s)", gm_show_bytes(facts->largest));
	if (facts->pending > 0)
		WHY(", and %s waited for the GPU", gm_show_bytes(facts->pending));
	WHY(": fragmentation.");
	if (rounding_matters(facts))
		say_held(facts, ret);
}

static void say_others(const struct gm_facts *facts, struct gm_explanation *ret)
{
	int64_t others = gm_facts_others(facts), missing = gm_facts_missing(facts);

	WHY("%s too little, while %s were held by others, which are not recorded here: other "
	    "processes, contexts, allocations past the library", gm_show_bytes(missing),
	    gm_show_bytes(others));
	if (others < missing)
		WHY("; even without them it would have been %s too little",
		    gm_show_bytes(missing - others));
	WHY(".");
}

/* Name the call site that holds the most, if it only grew. */
static void say_growth(const struct gm_facts *facts, struct gm_explanation *ret)
{
	const struct gm_growth *growth = &facts->growth;

	if (!growth->grows)
		return;
	WHY(" %s held %s in %s", growth->site, gm_show_bytes(growth->bytes), gm_show_count(growth->blocks, "block"));
	if (growth->leaks)
		WHY(" and grows without end: blocks from every time of the run are still held.");
	else
		WHY(", and freed %s%s.", growth->freed ? "few" : "none",
		    ret->cause == GM_CAUSE_FULL ? ": a leak, unless the program needs them all" : "");
}

/* Pinned memory is the machine's; how much the kernel had left is not known. */
static void say_host(const struct gm_facts *facts, struct gm_explanation *ret)
{
	WHY("Pinned memory is memory of the machine, so the device is not at fault");
	if (facts->total > 0)
		WHY(" (%s of its %s were free)", gm_show_bytes(facts->free), gm_show_bytes(facts->total));
	WHY(". The program itself held %s of pinned memory.", gm_show_bytes(facts->live));
	say_growth(facts, ret);
}

static void say_why(const struct gm_scene *scene, const struct gm_facts *facts,
		    struct gm_explanation *ret)
{
	int64_t missing = gm_facts_missing(facts);

	say_who(scene, facts, ret);
	switch (ret->cause) {
	case GM_CAUSE_TOO_LARGE:
		if (facts->total > 0)
			WHY("more than the whole device has, %s.", gm_show_bytes(facts->total));
		else
			WHY("more than that and all that PyTorch held together, %s.",
			    gm_show_bytes(facts->free + facts->live + facts->cached +
					  facts->pending));
		break;
	case GM_CAUSE_LIMIT:
		say_limit(facts, ret);
		break;
	case GM_CAUSE_REFUSED:
		WHY("that would have fitted, but the driver refused it.");
		break;
	case GM_CAUSE_FRAGMENTED:
		say_idle(facts, ret);
		say_growth(facts, ret);
		break;
	case GM_CAUSE_LEAK:
		WHY("%s too little.", gm_show_bytes(missing));
		say_growth(facts, ret);
		if (facts->cached > 0)
			WHY(" %s lay idle in the cache.", gm_show_bytes(facts->cached));
		break;
	case GM_CAUSE_PENDING:
		WHY("%s too little, while %s were freed and not yet reusable, since the GPU may have "
		    "been using them", gm_show_bytes(missing), gm_show_bytes(facts->pending));
		if (facts->cached > 0)
			WHY(", and %s lay idle in the cache", gm_show_bytes(facts->cached));
		WHY(".");
		if (facts->capturing)
			WHY(" A stream was capturing a graph, and during a capture the library cannot ask the GPU "
			    "whether it still uses memory.");
		break;
	case GM_CAUSE_OTHERS:
		say_others(facts, ret);
		break;
	case GM_CAUSE_HOST:
		say_host(facts, ret);
		break;
	default:
		WHY("%s too little.", gm_show_bytes(missing));
		say_held(facts, ret);
		if (ret->cause == GM_CAUSE_FULL)
			say_growth(facts, ret);
	}
}

/* ---- what to change -------------------------------------------------------------------------- */

/* Name the largest holder: a call site, or a module if there are no stacks. */
static void say_holder(const struct gm_scene *scene, const struct gm_facts *facts,
		       struct gm_explanation *ret)
{
	int64_t missing = facts->device == GM_ROW_HOST ? INT64_MAX :	/* not known */
			facts->limit > 0 ? facts->limit_used + facts->needed - facts->limit :
			gm_facts_missing(facts);
	struct gm_groups groups;

	if (!facts->holders_known || gm_explain_holders(scene, ret, GM_BY_SITE, &groups))
		return;
	if (groups.count && !strcmp(groups.list[0].key, GM_NO_STACK)) {
		gm_groups_close(&groups);
		if (gm_explain_holders(scene, ret, GM_BY_MODULE, &groups))
			return;
	}
	if (groups.count && groups.list[0].bytes[1] > 0 && strcmp(groups.list[0].key, facts->growth.grows ?
								   facts->growth.site : "")) {
		const struct gm_group *most = &groups.list[0];

		CHANGE("%s %s the most, %s in %s%s", gm_show_clean(most->key),
		       ret->row == GM_LIVES_END ? "holds" : "held", gm_show_bytes(most->bytes[1]),
		       gm_show_count(most->count[1], "block"),
		       most->bytes[1] < missing ? "" : ": more than was lacking");
		if (most->count[1] >= MANY)
			CHANGE("; so many blocks may be a leak (gpumem leaks)");
		CHANGE(". ");
	}
	gm_groups_close(&groups);
}

/* Is the largest holder PyTorch's allocator, which has a cache of its own? */
static bool is_below_torch(const struct gm_scene *scene, const struct gm_facts *facts,
			   const struct gm_explanation *explanation)
{
	struct gm_groups modules;
	bool is;

	if (!facts->holders_known || facts->torch ||
	    gm_explain_holders(scene, explanation, GM_BY_MODULE, &modules))
		return false;
	is = modules.count && !strncmp(modules.list[0].key, "libc10_cuda", 11);
	gm_groups_close(&modules);
	return is;
}

/* Did PyTorch's allocator ask the driver, and is its pool on that device recorded? */
static bool is_told(const struct gm_scene *scene, const struct gm_facts *facts)
{
	if (facts->pool || strncmp(facts->module, "libc10_cuda", 11))
		return false;
	for (size_t i = 0; i < scene->snapshot->pool_count; i++)
		if (scene->snapshot->pools[i].device == facts->device &&
		    !strcmp(gm_json_text(scene->snapshot->pools[i].root, "source"), "libc10"))
			return true;
	return false;
}

static void advise_limit(const struct gm_scene *scene, const struct gm_facts *facts,
			 struct gm_explanation *ret)
{
	int64_t need = facts->limit_used + facts->needed;

	if (facts->torch) {
		CHANGE("It takes a fraction of at least %s. If none was set, the driver refused it: "
		       "another process or thread had the memory at that moment, or a limit of MPS "
		       "is in the way.", gm_show_bytes(gm_facts_torch_held(facts) + facts->needed));
		return;
	}
	CHANGE("It takes a limit of at least %s", gm_show_bytes(need));
	if (facts->total > 0 && need <= facts->total && strstr(facts->refused_by, "fraction"))
		CHANGE(" (a fraction of %.4f)", ceil((double)need / (double)facts->total * 1e4) / 1e4);
	if (facts->needed > facts->free)
		CHANGE(", and %s more of the device than were free",
		       gm_show_bytes(facts->needed - facts->free));
	CHANGE("; or the program must hold less. ");
	say_holder(scene, facts, ret);
}

static void advise(const struct gm_scene *scene, const struct gm_facts *facts,
		   struct gm_explanation *ret)
{
	switch (ret->cause) {
	case GM_CAUSE_TOO_LARGE:
		CHANGE("Freeing memory would not help: look at how that size is computed, or "
		       "spread the work over several devices.");
		break;
	case GM_CAUSE_LIMIT:
		advise_limit(scene, facts, ret);
		break;
	case GM_CAUSE_REFUSED:
		CHANGE("Another thread or process had the memory at that moment, or a limit is in "
		       "the way: of MPS, or the maximum of a pool that the program made.");
		break;
	case GM_CAUSE_FRAGMENTED:
		/* Wholly idle segments need no advice: they were given back before the call failed. */
		if (facts->pool)	/* gm_explain_pool says which setting would help */
			break;
		if (gm_explain_ours(scene, facts, ret->row, ret->change, sizeof(ret->change)))
			break;
		CHANGE("gpumem replay --search tells whether other settings of the allocator would "
		       "have served it. %s",
		       facts->expandable ? "" : facts->torch ?
		       "expandable_segments:True helps most programs of PyTorch." :
		       "Two habits keep large pieces whole: make large requests first, and do not mix "
		       "blocks that live long with blocks that come and go.");
		break;
	case GM_CAUSE_LEAK:
		CHANGE("Free what %s allocates, or bound how much it keeps: gpumem leaks has its stacks.",
		       facts->growth.site);
		break;
	case GM_CAUSE_PENDING:
		if (facts->capturing)
			CHANGE("Before the capture begins, free what the graph does not need and synchronise, or "
			       "allocate what the graph needs.");
		else
			CHANGE("Synchronise before large requests, or free on the stream that used the memory "
			       "last.");
		break;
	case GM_CAUSE_OTHERS:
		CHANGE("nvidia-smi shows the processes on the device, this one too: end the others, or "
		       "take another device.");
		break;
	case GM_CAUSE_HOST:
		say_holder(scene, facts, ret);
		CHANGE("Look at the machine's free memory (free -h) and at what may limit the process: the "
		       "memory.max of its container or cgroup, and locked memory (ulimit -l). Or pin less: "
		       "reuse pinned buffers, or free them earlier.");
		break;
	case GM_CAUSE_LARGE:
		CHANGE("That one request is more than all that the program held: look at how its size "
		       "is computed, or do the work in smaller parts.");
		break;
	default:
		/* If rounding took what was missing, another setting may round less. */
		if (!rounding_matters(facts) || facts->rounding < gm_facts_missing(facts) ||
		    !gm_explain_ours(scene, facts, ret->row, ret->change, sizeof(ret->change)))
			say_holder(scene, facts, ret);
		if (is_told(scene, facts))
			CHANGE("PyTorch gives idle segments back and asks again; if that fails, too, a later "
			       "snapshot shows PyTorch's own failure, with what its pool kept. ");
		else if (is_below_torch(scene, facts, ret))
			CHANGE("Part of what PyTorch's allocator holds may lie idle in its own cache: its own "
			       "snapshot shows that (torch.cuda.memory._dump_snapshot; gpumem reads it). ");
		CHANGE("Free earlier, or make batches or the program's own caches smaller.");
	}
}

void gm_explain_say(const struct gm_scene *scene, const struct gm_facts *facts,
		    struct gm_explanation *ret)
{
	size_t length;

	say_why(scene, facts, ret);
	advise(scene, facts, ret);
	length = strlen(ret->change);
	if (length && ret->change[length - 1] == ' ')
		ret->change[length - 1] = '\0';
}
