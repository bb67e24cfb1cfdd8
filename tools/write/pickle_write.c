/*
 * pickle_write.c - a tree of values as a pickle: see tree_write.h. One thread.
 *
 * Items of lists and dicts go in batches behind a mark, 1,000 at the most: PyTorch's viewer spreads
 * a batch over a call's arguments, and a browser has an end of those.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "tools/write/tree_internal.h"
#include "tools/read/value.h"

#define BATCH 1000

/* An opcode and @count bytes of @word, little-endian. */
static inline void put_op(struct gm_tree *tree, unsigned char opcode, uint64_t word, unsigned int count)
{
	unsigned char bytes[9] = { opcode };

	word = htole64(word);
	memcpy(bytes + 1, &word, sizeof(word));
	gm_sink_put(&tree->sink, bytes, count + 1);
	if (tree->sink.error)
		tree->error = tree->sink.error;
}

static void end_batch(struct gm_tree *tree, struct gm_tree_level *level)
{
	if (level->batch)
		put_op(tree, level->type == GM_TREE_LIST ? 'e' : 'u', 0, 0);
	level->batch = 0;
}

/* Something comes: into which batch? */
static void before(struct gm_tree *tree)
{
	struct gm_tree_level *level = &tree->levels[tree->depth];

	if (!tree->depth || level->type == GM_TREE_TUPLE)
		return;
	if (level->batch == (level->type == GM_TREE_DICT ? 2 * BATCH : BATCH))
		end_batch(tree, level);
	if (!level->batch++)
		put_op(tree, '(', 0, 0);
}

/* Remember what is on the top of the reader's stack as number @tree->memoised. */
static void memoise(struct gm_tree *tree, uint64_t a, uint64_t b)
{
	if (gm_table_put(&tree->known, a, b, tree->memoised + UINT64_C(1))) {
		tree->error = -ENOMEM;
		return;
	}
	if (tree->memoised < 256)
		put_op(tree, 'q', tree->memoised, 1);
	else
		put_op(tree, 'r', tree->memoised, 4);
	tree->memoised++;
}

static void put_get(struct gm_tree *tree, uint64_t number)
{
	if (number < 256)
		put_op(tree, 'h', number, 1);
	else
		put_op(tree, 'j', number, 4);
}

/* Returns its number + 1, 0: it is not known. */
static uint64_t recall(struct gm_tree *tree, uint64_t a, uint64_t b)
{
	uint64_t number = gm_table_get(&tree->known, a, b);

	if (number)
		put_get(tree, number - 1);
	return number;
}

static void begin(struct gm_tree *tree, enum gm_tree_type type)
{
	uint64_t key = tree->pending;

	before(tree);
	put_op(tree, type == GM_TREE_LIST ? ']' : type == GM_TREE_DICT ? '}' : '(', 0, 0);
	tree->pending = 0;
	if (key && type != GM_TREE_TUPLE && tree->memoised < UINT32_MAX)
		memoise(tree, key, 1);
}

static void end(struct gm_tree *tree)
{
	struct gm_tree_level *level = &tree->levels[tree->depth];

	if (level->type == GM_TREE_TUPLE)
		put_op(tree, 't', 0, 0);
	else
		end_batch(tree, level);
}

static void null(struct gm_tree *tree)
{
	before(tree);
	put_op(tree, 'N', 0, 0);
}

static void truth(struct gm_tree *tree, bool is_true)
{
	before(tree);
	put_op(tree, is_true ? 0x88 : 0x89, 0, 0);
}

/* LONG1: as few bytes as hold it with its sign. */
static void put_long(struct gm_tree *tree, uint64_t word, bool negative)
{
	unsigned char bytes[11] = { 0x8a };
	unsigned char fill = negative ? 0xff : 0;
	unsigned int count = 9;

	for (unsigned int i = 0; i < 9; i++)
		bytes[2 + i] = (unsigned char)(i < 8 ? word >> (8 * i) : fill);
	while (count > 1 && bytes[1 + count] == fill && (bytes[count] & 0x80) == (fill & 0x80))
		count--;
	bytes[1] = (unsigned char)count;
	gm_sink_put(&tree->sink, bytes, count + 2);
}

static void integer(struct gm_tree *tree, int64_t value)
{
	before(tree);
	if (value >= 0 && value < 256)
		put_op(tree, 'K', (uint64_t)value, 1);
	else if (value >= 0 && value < 65536)
		put_op(tree, 'M', (uint64_t)value, 2);
	else if (value >= INT32_MIN && value <= INT32_MAX)
		put_op(tree, 'J', (uint64_t)value, 4);
	else
		put_long(tree, (uint64_t)value, value < 0);
}

static void word(struct gm_tree *tree, uint64_t value)
{
	if (value <= INT64_MAX) {
		integer(tree, (int64_t)value);
		return;
	}
	before(tree);
	put_long(tree, value, false);
}

static void real(struct gm_tree *tree, double value)
{
	unsigned char bytes[9] = { 'G' };
	uint64_t bits;

	before(tree);
	memcpy(&bits, &value, sizeof(bits));
	bits = __builtin_bswap64(bits);
	memcpy(bytes + 1, &bits, sizeof(bits));
	gm_sink_put(&tree->sink, bytes, sizeof(bytes));
}

/* A text that is said again most often lies where it lay: it is that one if it is equal, too. */
static struct gm_tree_text *lately(struct gm_tree *tree, const char *bytes)
{
	return &tree->lately[((uintptr_t)bytes >> 3 ^ (uintptr_t)bytes) & (GM_TREE_TEXTS - 1)];
}

static void text(struct gm_tree *tree, const char *bytes, size_t count)
{
	struct gm_tree_text *known = lately(tree, bytes);
	const struct gm_value *one;
	uint64_t number;

	before(tree);
	if (known->text && known->text->count == count && !memcmp(known->text->u.text, bytes, count)) {
		put_get(tree, known->number);
		return;
	}
	one = gm_value_text(tree->texts, bytes, count);
	if (!one || tree->memoised == UINT32_MAX) {
		tree->error = -ENOMEM;
		return;
	}
	number = recall(tree, (uint64_t)(uintptr_t)one, 0);
	if (number) {
		*known = (struct gm_tree_text){ one, (uint32_t)(number - 1) };
		return;
	}
	put_op(tree, 'X', count, 4);
	gm_sink_put(&tree->sink, bytes, count);
	memoise(tree, (uint64_t)(uintptr_t)one, 0);
}

static void name(struct gm_tree *tree, const char *string)
{
	text(tree, string, strlen(string));
}

static bool again(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort)
{
	uint64_t number = gm_table_get(&tree->known, key, 1);

	(void)sort;
	if (!number) {
		tree->pending = key;
		return false;
	}
	before(tree);
	put_get(tree, number - 1);
	return true;
}

static void expect(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort, bool soon)
{
	(void)sort;
	if (!soon)
		gm_table_fetch(&tree->known, key, 1);
}

static void close_pickle(struct gm_tree *tree)
{
	put_op(tree, '.', 0, 0);
}

struct gm_tree *gm_tree_pickle(FILE *out)
{
	static const struct gm_tree_ops ops = {
		begin, end, null, truth, integer, word, real, text, name, again, expect, close_pickle
	};
	struct gm_tree *tree = gm_tree_open(out, &ops);

	if (!tree)
		return NULL;
	tree->texts = gm_values_open(SIZE_MAX);
	if (!tree->texts)
		tree->error = -ENOMEM;
	put_op(tree, 0x80, 2, 1);
	return tree;
}
