/*
 * replayed.c - write a replay as a snapshot in PyTorch's form: see replay.h. One thread.
 */
#include "tools/replay/replay.h"

#include <stdlib.h>

#include "tools/write/writer.h"

#define SMALL_BUFFER (UINT64_C(2) << 20)	/* size of every segment of PyTorch's small pool, and of no other */

struct gm_replayed {
	struct gm_writer *writer;
	const char *conf;
};

static void put_word(struct gm_writer *writer, const char *name, uint64_t word)
{
	gm_writer_string(writer, name);
	gm_writer_word(writer, word);
}

struct gm_replayed *gm_replayed_open(FILE *file, const char *conf)
{
	struct gm_replayed *into = calloc(1, sizeof(*into));

	if (into)
		*into = (struct gm_replayed){ gm_writer_open(file, false), conf };
	if (!into || !into->writer) {
		free(into);
		return NULL;
	}
	gm_writer_begin(into->writer, GM_WRITER_DICT);
	gm_writer_put_begin(into->writer, "device_traces", GM_WRITER_LIST);
	gm_writer_begin(into->writer, GM_WRITER_LIST);
	return into;
}

void gm_replayed_event(struct gm_replayed *into, uint64_t moment, const char *action, uint64_t address, uint64_t bytes,
		       uint64_t stream)
{
	struct gm_writer *writer = into->writer;

	gm_writer_begin(writer, GM_WRITER_DICT);
	gm_writer_put_string(writer, "action", action);
	put_word(writer, "addr", address);
	put_word(writer, "size", bytes);
	put_word(writer, "stream", stream);
	put_word(writer, "time_us", moment);
	gm_writer_put_begin(writer, "frames", GM_WRITER_LIST);
	gm_writer_end(writer);
	gm_writer_end(writer);
}

static void put_block(struct gm_writer *writer, const struct gm_block *block)
{
	gm_writer_begin(writer, GM_WRITER_DICT);
	put_word(writer, "address", block->address);
	put_word(writer, "size", block->size);
	put_word(writer, "requested_size", block->state == GM_BLOCK_ACTIVE ? block->requested : 0);
	gm_writer_put_string(writer, "state", block->state == GM_BLOCK_ACTIVE ? "active_allocated" :
			     block->state == GM_BLOCK_PENDING ? "active_awaiting_free" : "inactive");
	gm_writer_put_begin(writer, "frames", GM_WRITER_LIST);
	gm_writer_end(writer);
	gm_writer_end(writer);
}

static void put_segment(struct gm_writer *writer, const struct gm_heap *heap, const struct gm_segment *segment)
{
	uint64_t allocated = 0, active = 0, requested = 0;

	gm_writer_begin(writer, GM_WRITER_DICT);
	gm_writer_put_int(writer, "device", 0);
	put_word(writer, "address", segment->address);
	put_word(writer, "total_size", segment->size);
	put_word(writer, "stream", segment->stream);
	gm_writer_put_string(writer, "segment_type", segment->size <= SMALL_BUFFER ? "small" : "large");
	gm_writer_put_begin(writer, "blocks", GM_WRITER_LIST);
	for (uint32_t id = segment->first_block; id; id = heap->blocks[id].next) {
		const struct gm_block *block = &heap->blocks[id];

		put_block(writer, block);
		active += block->state == GM_BLOCK_INACTIVE ? 0 : block->size;
		allocated += block->state == GM_BLOCK_ACTIVE ? block->size : 0;
		requested += block->state == GM_BLOCK_ACTIVE ? block->requested : 0;
	}
	gm_writer_end(writer);
	put_word(writer, "allocated_size", allocated);
	put_word(writer, "active_size", active);
	put_word(writer, "requested_size", requested);
	gm_writer_end(writer);
}

void gm_replayed_heap(struct gm_replayed *into, const struct gm_heap *heap, uint32_t first_segment)
{
	struct gm_writer *writer = into->writer;

	gm_writer_end(writer);
	gm_writer_end(writer);
	gm_writer_put_begin(writer, "segments", GM_WRITER_LIST);
	for (uint32_t id = first_segment; id; id = heap->segments[id].next)
		put_segment(writer, heap, &heap->segments[id]);
	gm_writer_end(writer);
	gm_writer_put_begin(writer, "allocator_settings", GM_WRITER_DICT);
	gm_writer_put_string(writer, "PYTORCH_CUDA_ALLOC_CONF", into->conf);
	gm_writer_end(writer);
	gm_writer_end(writer);
}

int gm_replayed_close(struct gm_replayed *into)
{
	int r = gm_writer_close(into->writer);

	free(into);
	return r;
}
