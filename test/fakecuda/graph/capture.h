/*
 * capture.h - captures in progress: between capture.c (streams, nodes, beginning and ending),
 * capture_event.c (events that fork and join), capture_rule.c (what is refused meanwhile) and
 * capture_info.c (asking about them). All under fc.lock.
 */
#ifndef FC_CAPTURE_H
#define FC_CAPTURE_H

#include "test/fakecuda/graph/graph.h"

struct cap_set {		/* the nodes that what comes next depends on */
	struct fc_edge *e;
	size_t n;
};

struct capture {
	unsigned int refs;	/* itself while under way, its events */
	uint64_t id;
	CUstreamCaptureMode mode;
	uint64_t thread;	/* that began it */
	bool over, invalid;
	struct fc_graph *graph;
	bool given;		/* the graph was the program's before */
	struct fc_stream *origin;
	struct cap_stream *streams;	/* of all that take part */
	struct cap_event *events;	/* last recorded in it */
	struct cap_set left;		/* the ends of streams that were destroyed meanwhile */
	struct capture *next, **prevp;	/* under way */
};

struct cap_stream {		/* stream->capture */
	struct capture *cap;
	struct fc_stream *s;
	struct cap_set deps;
	struct cap_stream *next;
};

struct cap_event {		/* event->capture */
	struct capture *cap;	/* counted */
	struct cap_set nodes;
	struct cap_event *next, **prevp;
};

struct capture *cap_first(void);
void cap_put(struct capture *c);
void cap_invalidate(struct capture *c);
/* cap_join - @s takes part in @c from now on. */
CUresult cap_join(struct capture *c, struct fc_stream *s);
/* cap_end - nothing captures into it any more; the graph goes too unless *ret_graph takes it. */
void cap_end(struct capture *c, struct fc_graph **ret_graph);

bool cap_set_has(const struct cap_set *set, const struct fc_node *n);
CUresult cap_set_add(struct cap_set *set, struct fc_node *n, const CUgraphEdgeData *data);
CUresult cap_set_union(struct cap_set *into, const struct cap_set *from);
void cap_set_clear(struct cap_set *set);
void cap_set_remove(struct cap_set *set, const struct fc_node *n);

static inline struct cap_stream *cap_of(const struct fc_stream *s)
{
	return s->capture;
}

#endif
