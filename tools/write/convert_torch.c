/*
 * convert_torch.c - PyTorch's pickle and JSON, and our own JSON: for `gpumem convert`. One thread.
 */
#include <errno.h>

#include "tools/read/bulk.h"
#include "tools/write/convert.h"
#include "tools/torch/torch_write.h"

#define VIEWER_MOST UINT64_C(536870888)	/* characters of a text in V8: more the page cannot open */

/* End @tree; say so when PyTorch's page will not open it. */
static int close_tree(struct gm_tree *tree, char note[256])
{
	uint64_t bytes = gm_tree_bytes(tree);

	if (bytes > VIEWER_MOST)
		snprintf(note, 256, "%llu bytes of JSON are more than pytorch.org/memory_viz opens (%llu): use "
			 "--to pickle", (unsigned long long)bytes, (unsigned long long)VIEWER_MOST);
	return gm_tree_close(tree);
}

static void say_left_out(const struct gm_torch_fit *fit, char note[256])
{
	int length = 0;

	if (fit->left_out || fit->segments_left_out)
		length = snprintf(note, 256, "left out, as PyTorch's viewer could not follow them: %zu events (their "
				  "other half is not in the history), %zu segments (at the place of another)",
				  fit->left_out, fit->segments_left_out);
	if (fit->others_left_out)
		snprintf(note + length, (size_t)(256 - length), "%s: %zu events of memory of other processes",
			 length ? "; and" : "left out, as it is of every statistic", fit->others_left_out);
}

static int write_tree(struct gm_tree *tree, const struct gm_loaded *loaded, char note[256])
{
	struct gm_torch_fit fit;
	int r = 0, end;

	if (!tree)
		return -ENOMEM;
	if (loaded->torch) {
		gm_torch_write_value(tree, loaded->torch);
		return close_tree(tree, note);
	}
	r = gm_torch_make_fit(&fit, loaded->root);
	if (!r) {
		r = gm_torch_write(tree, loaded->root, &fit);
		say_left_out(&fit, note);
		if (!fit.count && !gm_value_length(gm_bulk_list(loaded->root, "segments")))
			snprintf(note, 256, "nothing is in it: neither events nor segments");
		gm_torch_unfit(&fit);
	}
	end = close_tree(tree, note);
	return r ? r : end;
}

int gm_convert_pickle(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	return write_tree(gm_tree_pickle(out), loaded, note);
}

int gm_convert_torch_json(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	return write_tree(gm_tree_json(out), loaded, note);
}

int gm_convert_snapshot(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	(void)note;
	return gm_bulk_write(loaded->root, out);
}
