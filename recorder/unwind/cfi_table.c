/*
 * cfi_table.c - the entry of .eh_frame for an instruction, by .eh_frame_hdr (see cfi.h).
 *
 * Owns nothing; any context.
 */
#include "recorder/unwind/cfi.h"

#include <errno.h>

/* The sorted table: pairs of offsets from @hdr, of code and of its FDE. */
struct table {
	struct gm_cfi_cursor cursor;
	uintptr_t at;
};

#define ENTRY_BYTES 8u

static int64_t table_code(struct table *table, uint64_t i)
{
	gm_cfi_cursor_seek(&table->cursor, table->at + i * ENTRY_BYTES, table->cursor.source->end);
	return gm_cfi_signed(&table->cursor, 4);
}

/* The last entry of @count whose code begins at or before @wanted (an offset from hdr). */
static uint64_t table_search(struct table *table, uint64_t count, int64_t wanted)
{
	uint64_t low = 0, high = count;			/* it is in [low, high) */

	while (high - low > 1 && !table->cursor.failed) {
		uint64_t middle = low + (high - low) / 2;

		if (table_code(table, middle) <= wanted)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* The address of the FDE, 0 where there are no tables. Its buffer is not on the stack any more
 * when the FDE is run. */
static __attribute__((noinline)) uintptr_t find_fde(const struct gm_cfi_source *source,
						    uintptr_t hdr, uintptr_t pc)
{
	enum { UDATA4 = 0x03, DATAREL_SDATA4 = 0x3b };
	struct table table;
	struct gm_cfi_cursor *c = &table.cursor;
	uint64_t count, entry;
	uintptr_t fde;
	uint8_t head[4];

	gm_cfi_cursor_open(c, source, hdr, source->end);
	for (unsigned int i = 0; i < 4; i++)
		head[i] = (uint8_t)gm_cfi_unsigned(c, 1);
	gm_cfi_pointer(c, head[1], hdr);		/* .eh_frame itself: not needed */
	count = gm_cfi_pointer(c, head[2], hdr);
	table.at = c->at;
	/* every linker writes the sorted table this way; without one there is nothing to search */
	if (c->failed || head[0] != 1 || head[2] != UDATA4 || head[3] != DATAREL_SDATA4 ||
	    count == 0 || count > (source->end - table.at) / ENTRY_BYTES)
		return 0;
	entry = table_search(&table, count, (int64_t)(pc - hdr));
	gm_cfi_cursor_seek(c, table.at + entry * ENTRY_BYTES + 4, source->end);
	fde = hdr + (uintptr_t)gm_cfi_signed(c, 4);
	return c->failed ? 0 : fde;
}

int gm_cfi_find(const struct gm_cfi_source *source, uintptr_t hdr, uintptr_t pc,
		struct gm_cfi_frame *ret_frame)
{
	uintptr_t fde = find_fde(source, hdr, pc);

	return fde ? gm_cfi_run(source, fde, pc, ret_frame) : -EBADMSG;
}
