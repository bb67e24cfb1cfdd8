/*
 * snapshot_process.c - the sections about the process: its identity, its options, the extent of its history,
 * the operations in flight, and the records that found no room. Contexts as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

#include <string.h>

void gm_snap_process(struct gm_snap *snap)
{
	const struct gm_header *header = snap->copy->header;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_object(w, "process");
	gm_jsonw_key_i64(w, "pid", header->pid);
	gm_snap_key_chars(snap, "command", header->command, sizeof(header->command));
	gm_snap_key_chars(snap, "command_line", header->command_line, sizeof(header->command_line));
	gm_snap_key_chars(snap, "directory", header->directory, sizeof(header->directory));
	gm_snap_key_chars(snap, "host", header->host, sizeof(header->host));
	gm_jsonw_key_i64_if(w, "rank", header->rank >= 0, header->rank);
	gm_jsonw_key_u64(w, "uid", header->uid);
	gm_jsonw_key_u64(w, "start_time_us", header->start_time_us);
	gm_jsonw_key_i64(w, "driver_version", header->driver_version);
	gm_snap_key_chars(snap, "gpumem_version", header->gpumem_version,
			  sizeof(header->gpumem_version));
	/* A process that is dead, but still "running" in its journal, was ended by SIGKILL, by the kernel's
	 * out-of-memory killer, or by exec. */
	gm_jsonw_key_text(w, "life", snap->request->recovered && header->life == GM_LIFE_RUNNING ?
			  "killed" : gm_life_name(header->life));
	gm_jsonw_key_u64(w, "pid_namespace", header->pid_namespace);
	gm_snap_key_chars(snap, "boot_id", header->boot_id, sizeof(header->boot_id));
	gm_jsonw_end(w);
}

void gm_snap_recovered(struct gm_snap *snap)
{
	const struct gm_copy *copy = snap->copy;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_object(w, "recovered");
	gm_jsonw_key_bool(w, "after_death", snap->request->recovered);
	gm_jsonw_key_u64(w, "undone", copy->undone);
	gm_jsonw_key_u64(w, "damaged", copy->damage);
	gm_jsonw_key_array(w, "in_flight");
	for (size_t i = 0; i < copy->flight_count; i++) {
		const struct gm_flight *flight = &copy->flights[i];

		gm_jsonw_object(w);
		gm_jsonw_key_text(w, "action", gm_action_name(flight->action));
		gm_jsonw_key_text(w, "kind", gm_kind_name(flight->kind));
		gm_snap_key_device(snap, flight->domain);
		gm_jsonw_key_u64(w, "addr", flight->address);
		gm_jsonw_key_u64(w, "size", flight->size);
		gm_snap_key_time(snap, "time_us", flight->tsc);
		gm_jsonw_key_u64(w, "thread", flight->tid);
		gm_jsonw_key_bool(w, "took_effect", flight->done);
		gm_jsonw_end(w);
	}
	gm_jsonw_end(w);
	gm_jsonw_end(w);
}

/* Return word @number of a list; "unknown" for a number that is out of range, because it comes from the header. */
static const char *word(const char *const *words, uint32_t count, uint32_t number)
{
	return number < count ? words[number] : "unknown";
}

/* Write what is recorded: the switches, and the events that options leave out. */
static void put_wanted(struct gm_snap *snap)
{
	static const char *const enabled[] = { "all", "state", "none" };
	static const char *const context[] = { "none", "state", "alloc", "all" };
	static const char *const stacks[] = { "none", "python", "native", "all" };
	const struct gm_header *header = snap->copy->header;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_text(w, "enabled", word(enabled, 3, header->history_enabled));
	gm_jsonw_key_text(w, "context", word(context, 4, header->history_context));
	gm_jsonw_key_text(w, "stacks", word(stacks, 4, header->history_stacks));
	gm_jsonw_key_u64(w, "min_size", header->history_min_size);
	gm_jsonw_key_array(w, "actions");
	for (unsigned int action = GM_ACTION_NONE + 1; action < GM_ACTION_COUNT; action++)
		if (!(header->history_left_out >> action & 1))
			gm_jsonw_text(w, gm_action_name(action));
	gm_jsonw_end(w);
}

/* Write how many events were never written, and why. */
static void put_unwritten(struct gm_snap *snap)
{
	uint64_t small = 0, left_out = 0, paused = 0;

	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *domain = gm_copy_domain(snap->copy, d);

		small += domain ? domain->counts.small : 0;
		left_out += domain ? domain->counts.left_out : 0;
		paused += domain ? domain->counts.paused : 0;
	}
	gm_jsonw_key_u64(snap->w, "filtered_small", small);
	gm_jsonw_key_u64(snap->w, "filtered_actions", left_out);
	gm_jsonw_key_u64(snap->w, "paused", paused);
}

void gm_snap_history(struct gm_snap *snap)
{
	const struct gm_copy *copy = snap->copy;
	const struct gm_header *header = copy->header;
	uint64_t newest = header->history_newest;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_object(w, "history");
	put_wanted(snap);
	gm_jsonw_key_u64(w, "max_events", newest && newest < header->history_events ? newest :
			 header->history_events);
	gm_jsonw_key_u64(w, "events", copy->event_count);
	gm_jsonw_key_u64(w, "dropped", copy->dropped_total);
	gm_jsonw_key_u64(w, "events_lost", header->events_lost);
	gm_jsonw_key_u64(w, "operations_lost", header->operations_lost);
	put_unwritten(snap);
	gm_jsonw_key_u64(w, "annotations_lost", header->annotations_lost);
	gm_jsonw_end(w);
	gm_jsonw_key_object(w, "refused");
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)
		gm_jsonw_key_u64(w, gm_region_name(r), gm_copy_refused(copy, r));
	gm_jsonw_end(w);
}

static const struct gm_setting *setting_at(const struct gm_snap *snap, size_t index)
{
	return (const struct gm_setting *)(snap->copy->base +
		snap->copy->header->regions[GM_REGION_SETTINGS].offset) + index;
}

static const char *setting(const struct gm_snap *snap, const char *name)
{
	for (size_t i = 0; i < gm_copy_items(snap->copy, GM_REGION_SETTINGS); i++)
		if (!strcmp(gm_copy_string(snap->copy, setting_at(snap, i)->name, NULL), name))
			return gm_copy_string(snap->copy, setting_at(snap, i)->value, NULL);
	return "";
}

/* Return the number at @text; @ret_end is behind its digits. Wraps when there are too many digits. */
static uint64_t number_at(const char *text, const char **ret_end)
{
	uint64_t value = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		value = value * 10 + (uint64_t)(*text - '0');
	*ret_end = text;
	return value;
}

static void put_bool_setting(struct gm_snap *snap, const char *name)
{
	const char *value = setting(snap, name);

	gm_jsonw_key_bool(snap->w, name, !strcmp(value, "True") || !strcmp(value, "yes") ||
			  !strcmp(value, "1"));
}

/* Write a fraction as the option spells it, if that is a JSON number: digits, perhaps with a point and more digits. A
 * point is added if there is none, because PyTorch's value is a float. */
static void put_fraction_setting(struct gm_snap *snap, const char *name)
{
	const char *value = setting(snap, name), *end, *rest;
	char text[48];
	size_t length;

	number_at(value, &end);
	rest = end;
	if (end > value && *end == '.')
		number_at(end + 1, &rest);
	length = (size_t)(rest - value) < sizeof(text) - 2 ? (size_t)(rest - value) : 0;
	memcpy(text, value, length);
	if (rest == end) {
		memcpy(text + length, ".0", 2);
		length += 2;
	}
	gm_jsonw_key(snap->w, name);
	if (end == value || *rest || rest - value > 40 || rest[-1] == '.' ||
	    (value[0] == '0' && end - value > 1))
		gm_jsonw_raw(snap->w, "0.0", 3);
	else
		gm_jsonw_raw(snap->w, text, length);
}

/* Write PyTorch's max_split_size: bytes; -1: no limit. */
static void put_max_split(struct gm_snap *snap)
{
	const char *value = setting(snap, "max_split_size_mb"), *end;
	uint64_t mib = number_at(value, &end);

	gm_jsonw_key(snap->w, "max_split_size");
	if (end == value || mib > INT64_MAX >> 20)
		gm_jsonw_i64(snap->w, -1);
	else
		gm_jsonw_u64(snap->w, mib << 20);
}

/* Write PyTorch's table of 16 intervals, from "4" or "[256:1,512:2,>:8]". The first value also holds for the
 * intervals below it, and ">" for all intervals above the last one named. */
static void put_divisions(struct gm_snap *snap)
{
	const char *at = setting(snap, "roundup_power2_divisions");
	uint64_t bins[16] = { 0 };
	int last = -1;

	if (*at != '[') {
		bins[0] = number_at(at, &at);
		for (int i = 1; i < 16; i++)
			bins[i] = bins[0];
	}
	while (*at == '[' || *at == ',') {
		bool above = at[1] == '>';
		uint64_t mib = above ? 0 : number_at(at + 1, &at), value;
		int bin = mib ? 63 - __builtin_clzll(mib) : 0;

		if (above)
			at += 2;
		if (*at != ':')
			break;
		value = number_at(at + 1, &at);
		if (bin > 15)
			bin = 15;
		for (int i = above ? last + 1 : last < 0 ? 0 : bin; i < (above ? 16 : bin + 1); i++)
			bins[i] = value;
		last = above ? 15 : bin;
	}
	gm_jsonw_key_object(snap->w, "roundup_power2_divisions");
	for (int i = 0; i < 16; i++) {
		static const char *const names[16] = {
			"1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048",
			"4096", "8192", "16384", "32768"
		};

		gm_jsonw_key_u64(snap->w, names[i], bins[i]);
	}
	gm_jsonw_end(snap->w);
}

void gm_snap_settings(struct gm_snap *snap)
{
	struct gm_jsonw *w = snap->w;
	const char *end;
	uint64_t threads = number_at(setting(snap, "pinned_num_register_threads"), &end);

	gm_jsonw_key_object(w, "allocator_settings");
	gm_jsonw_key_text(w, GM_SETTING_TORCH, setting(snap, GM_SETTING_TORCH));
	put_max_split(snap);
	put_fraction_setting(snap, "garbage_collection_threshold");
	put_bool_setting(snap, "expandable_segments");
	gm_jsonw_key_u64(w, "pinned_num_register_threads", threads ? threads : 1);
	put_bool_setting(snap, "release_lock_on_cudamalloc");
	put_bool_setting(snap, "pinned_use_cuda_host_register");
	put_bool_setting(snap, "graph_capture_record_stream_reuse");
	put_divisions(snap);
	gm_jsonw_key_object(w, "gpumem");
	for (size_t i = 0; i < gm_copy_items(snap->copy, GM_REGION_SETTINGS); i++) {
		const struct gm_setting *at = setting_at(snap, i);

		if (!strcmp(gm_copy_string(snap->copy, at->name, NULL), GM_SETTING_TORCH))
			continue;
		gm_jsonw_key_object(w, gm_copy_string(snap->copy, at->name, NULL));
		gm_jsonw_key_text(w, "value", gm_copy_string(snap->copy, at->value, NULL));
		gm_jsonw_key_text(w, "source", gm_copy_string(snap->copy, at->source, NULL));
		gm_jsonw_end(w);
	}
	gm_jsonw_end(w);
	gm_jsonw_end(w);
}
