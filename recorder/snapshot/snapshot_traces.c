/*
 * snapshot_traces.c - the sections "device_traces" and "host_trace", with the events of each device as
 * columns; and "annotations". Writing a column is one pass over the device's events.
 * Contexts as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

#include <errno.h>

int gm_snap_group_events(struct gm_snap *snap)
{
	const struct gm_copy *copy = snap->copy;
	size_t place[GM_DOMAINS], count = copy->event_count;
	unsigned int domains = 0;

	for (size_t i = 0; i < count; i++)
		snap->first[copy->events[i]->domain + 1]++;
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		domains += snap->first[d + 1] != 0;
		place[d] = snap->first[d];
		snap->first[d + 1] += snap->first[d];
	}
	snap->events = copy->events;
	if (domains <= 1)
		return 0;
	snap->events = gm_scratch_get(&snap->scratch, count * sizeof(*snap->events));
	if (!snap->events)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		snap->events[place[copy->events[i]->domain]++] = copy->events[i];
	return 0;
}

/* Write one column: call @put for each event of a device. */
#define COLUMN(snap, name, from, to, put, ...) do { \
	gm_jsonw_key_array((snap)->w, name); \
	for (size_t at_ = (from); at_ < (to); at_++) { \
		const struct gm_event *event = (snap)->events[at_]; \
		put((snap)->w, __VA_ARGS__); \
	} \
	gm_jsonw_end((snap)->w); \
} while (0)

void gm_snap_trace(struct gm_snap *snap, unsigned int domain)
{
	const struct gm_copy *copy = snap->copy;
	size_t from = snap->first[domain], to = snap->first[domain + 1];

	gm_jsonw_object(snap->w);
	gm_jsonw_key_u64(snap->w, "dropped", copy->dropped[domain]);
	COLUMN(snap, "action", from, to, gm_jsonw_text, gm_action_name(event->action));
	COLUMN(snap, "addr", from, to, gm_jsonw_u64, event->address);
	COLUMN(snap, "size", from, to, gm_jsonw_u64, event->size);
	COLUMN(snap, "stream", from, to, gm_jsonw_u64, gm_stream_shown(event->stream));
	COLUMN(snap, "time_us", from, to, gm_jsonw_u64, gm_clock_wall_us(&snap->wall, event->tsc));
	COLUMN(snap, "stack", from, to, gm_jsonw_u64,
	       gm_snap_stack(snap, gm_snap_event_stack(event)));
	COLUMN(snap, "thread", from, to, gm_jsonw_u64, gm_copy_event_thread(copy, event));
	COLUMN(snap, "kind", from, to, gm_jsonw_text, gm_kind_name(event->kind));
	COLUMN(snap, "module", from, to, gm_jsonw_u64, gm_snap_module(snap, event->module));
	gm_jsonw_end(snap->w);
}

void gm_snap_traces(struct gm_snap *snap)
{
	gm_jsonw_key_array(snap->w, "device_traces");
	for (unsigned int d = 0; d < snap->devices; d++)
		gm_snap_trace(snap, d);
	gm_jsonw_end(snap->w);
	gm_jsonw_key(snap->w, "host_trace");
	gm_snap_trace(snap, GM_DOMAIN_HOST);
}

void gm_snap_annotations(struct gm_snap *snap)
{
	const struct gm_copy *copy = snap->copy;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_key_array(w, "annotations");
	for (size_t i = 0; i < copy->event_count; i++) {
		static const char *const stages[GM_STAGE_COUNT] = { "MARK", "START", "END" };
		const struct gm_event *event = copy->events[i];

		if (event->action != GM_ACTION_ANNOTATE)
			continue;
		gm_jsonw_object(w);
		gm_snap_key_string(snap, "name", event->stack);
		gm_jsonw_key_text(w, "stage", event->flags < GM_STAGE_COUNT ? stages[event->flags] :
				  "unknown");
		if (event->context)
			gm_snap_key_string(snap, "domain", event->context);
		else
			gm_jsonw_key_text(w, "domain", NULL);
		gm_jsonw_key_u64(w, "range", event->size);
		gm_snap_key_device(snap, event->domain);
		gm_snap_key_time(snap, "time_us", event->tsc);
		gm_jsonw_key_u64(w, "thread", gm_copy_event_thread(copy, event));
		gm_jsonw_end(w);
	}
	gm_jsonw_end(w);
}
