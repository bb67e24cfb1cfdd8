/*
 * view_stacks.c - stacks for the viewer: a tree, because most stacks share their outer frames. See view.h. One thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "tools/read/table.h"
#include "tools/write/view.h"

struct node { uint32_t parent, frame; };
struct tree { struct node *list; size_t count; uint32_t *tips; };

/* Make the tree; tree->tips gets the node of each stack's innermost frame. Node 0 is the root, without a frame. Return
 * 0 or -ENOMEM. */
static int plant(const struct gm_stacks *stacks, struct tree *tree)
{
	struct gm_table known = { NULL, 0, 0 };		/* parent, frame -> node */
	struct node *new = gm_list_add(&tree->list, &tree->count, sizeof(*new));
	int r = new ? 0 : -ENOMEM;

	if (new)
		*new = (struct node){ 0, 0 };
	for (size_t s = 0; !r && s < stacks->count; s++) {
		size_t depth;
		const uint32_t *ids = gm_stack(stacks, (int64_t)s, &depth);
		uint32_t node = 0;

		while (!r && depth--) {
			uint64_t at = gm_table_get(&known, node, ids[depth]);

			if (!at) {
				at = tree->count;
				new = gm_list_add(&tree->list, &tree->count, sizeof(*new));
				if (!new || gm_table_put(&known, node, ids[depth], at))
					r = -ENOMEM;
				if (new)
					*new = (struct node){ node, ids[depth] };
			}
			node = (uint32_t)at;
		}
		tree->tips[s] = node;
	}
	gm_table_free(&known);
	return r;
}

#define FRAME(name, coding, EXPRESSION) \
	GM_COLUMN(p, "", name, coding, stacks->frame_count, struct gm_frame, f, &stacks->frames[i_], EXPRESSION)

int gm_pack_stacks(struct gm_packing *p)
{
	const struct gm_stacks *stacks = &p->scene->stacks;
	struct tree tree = { .tips = calloc(stacks->count + 1, sizeof(*tree.tips)) };
	size_t nodes, most;
	int64_t *larger;
	int r;

	r = tree.tips ? plant(stacks, &tree) : -ENOMEM;
	nodes = tree.count;
	most = nodes > stacks->count ? nodes : stacks->count;
	most = most > stacks->frame_count ? most : stacks->frame_count;
	larger = r ? NULL : realloc(p->numbers_of, (most + 1) * sizeof(*larger));
	if (larger) {
		p->numbers_of = larger;
		GM_COLUMN(p, "", "node.parent", GM_PLAIN, nodes, struct node, n, &tree.list[i_], i_ - n->parent);
		GM_COLUMN(p, "", "node.frame", GM_PLAIN, nodes, struct node, n, &tree.list[i_], n->frame);
		GM_COLUMN(p, "", "stack.node", GM_DELTA, stacks->count, uint32_t, tip, &tree.tips[i_], *tip);
		FRAME("frame.name", GM_PLAIN, gm_pack_text(p, f->name));
		FRAME("frame.file", GM_PLAIN, gm_pack_text(p, f->file));
		FRAME("frame.line", GM_PLAIN, f->line);
		FRAME("frame.module", GM_PLAIN, gm_pack_text(p, f->module));
		FRAME("frame.python", GM_PLAIN, f->python ? 1 : f->inlined ? 2 : 0);
	}
	free(tree.list);
	free(tree.tips);
	return larger ? p->planes.error : -ENOMEM;
}
