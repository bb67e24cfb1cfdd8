/*
 * convert_torch.c - PyTorch's pickle and JSON, and our own JSON: for `gpumem convert`. One thread.
 */
#include <errno.h>

#include "tools/write/convert.h"
#include "tools/torch/torch.h"
#include "tools/write/writer.h"

#define VIEWER_MOST UINT64_C(536870888)	/* the most characters of a string in V8, and so of a file on PyTorch's page */

/* Close @writer. @note says if the file is too large for PyTorch's page. */
static int close_writer(struct gm_writer *writer, char note[256])
{
	uint64_t bytes = gm_writer_bytes(writer);

	if (bytes > VIEWER_MOST)
		snprintf(note, 256, "%llu bytes of JSON are more than pytorch.org/memory_viz opens (%llu): use "
			 "--to pickle", (unsigned long long)bytes, (unsigned long long)VIEWER_MOST);
	return gm_writer_close(writer);
}

static void say_left_out(const struct gm_torch_fit *fit, char note[256])
{
	int length = 0;

	if (fit->left_out || fit->segments_left_out)
		length = snprintf(note, 256, "left out, as PyTorch's viewer could not follow them: %zu events (their "
				  "other half is not in the history), %zu segments (at the place of another)",
				  fit->left_out, fit->segments_left_out);
	if (fit->ipc_left_out)
		snprintf(note + length, (size_t)(256 - length), "%s: %zu events of memory of other processes",
			 length ? "; and" : "left out, as it is of every statistic", fit->ipc_left_out);
}

static int write_torch(struct gm_writer *writer, struct gm_loaded *loaded, char note[256])
{
	struct gm_snapshot *snapshot = &loaded->snapshot;
	struct gm_torch_fit fit;
	int r = 0, end;

	if (!writer)
		return -ENOMEM;
	if (loaded->torch) {
		gm_torch_write_value(writer, loaded->torch);
		return close_writer(writer, note);
	}
	r = gm_torch_make_fit(&fit, snapshot);
	if (!r) {
		r = gm_torch_write(writer, snapshot, &fit);
		say_left_out(&fit, note);
		if (!snapshot->row_count && !snapshot->segment_count)
			snprintf(note, 256, "nothing is in it: neither events nor segments");
		gm_torch_unfit(&fit);
	}
	end = close_writer(writer, note);
	return r ? r : end;
}

int gm_convert_pickle(FILE *out, struct gm_loaded *loaded, char note[256])
{
	return write_torch(gm_writer_open(out, true), loaded, note);
}

int gm_convert_torch_json(FILE *out, struct gm_loaded *loaded, char note[256])
{
	return write_torch(gm_writer_open(out, false), loaded, note);
}

int gm_convert_snapshot(FILE *out, struct gm_loaded *loaded, char note[256])
{
	(void)note;
	return gm_snapshot_json(&loaded->snapshot, out);
}
