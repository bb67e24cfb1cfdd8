/*
 * json_write.c - a tree of values as JSON: see tree_write.h. One thread.
 *
 * JSON cannot refer to what it has said before. The texts of leaves (frames) are kept and copied,
 * so that a stack said a million times is made up once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tree_internal.h"

#define BYTES_MOST (UINT64_C(1) << 33)
#define LEAF_MOST ((size_t)1 << 16)	/* what is larger is no leaf: it is not kept */

static void keep(struct gm_tree *tree, const char *bytes, size_t count)
{
	if (tree->kept_bytes + count > tree->kept_room) {
		size_t room = (tree->kept_room + count) * 2 + 4096;
		char *larger = realloc(tree->kept, room);

		if (!larger) {
			tree->error = -ENOMEM;
			return;
		}
		tree->kept = larger;
		tree->kept_room = room;
	}
	memcpy(tree->kept + tree->kept_bytes, bytes, count);
	tree->kept_bytes += count;
}

static void put(struct gm_tree *tree, const char *bytes, size_t count)
{
	tree->written += count;
	if (tree->written > BYTES_MOST)
		tree->error = -EFBIG;
	else if (fwrite_unlocked(bytes, 1, count, tree->out) != count)
		tree->error = -EIO;
	if (!tree->keeping_depth || tree->error)
		return;
	keep(tree, bytes, count);
	if (tree->kept_bytes - tree->keeping_from > LEAF_MOST) {
		gm_table_take(&tree->known, tree->pending, 0);
		tree->kept_bytes = tree->keeping_from;
		tree->keeping_depth = 0;
		tree->pending = 0;
	}
}

/* Something comes: what stands before it? */
static void before(struct gm_tree *tree)
{
	struct gm_tree_level *level = &tree->levels[tree->depth];

	if (!tree->depth)
		return;
	if (level->named)
		put(tree, ":", 1);
	else if (level->begun)
		put(tree, ",", 1);
	level->begun = true;
	level->named = level->type == GM_TREE_DICT && !level->named;
}

static void begin(struct gm_tree *tree, enum gm_tree_type type)
{
	before(tree);
	if (tree->pending && !tree->keeping_depth) {
		size_t length = 0;

		/* Known from here on; it is not asked for before it ends. */
		if (gm_table_put(&tree->known, tree->pending, 0, tree->kept_bytes + 1))
			tree->error = -ENOMEM;
		tree->keeping_from = tree->kept_bytes;
		keep(tree, (const char *)&length, sizeof(length));
		tree->keeping_depth = tree->depth + 1;
	}
	put(tree, type == GM_TREE_DICT ? "{" : "[", 1);
}

static void end(struct gm_tree *tree)
{
	put(tree, tree->levels[tree->depth].type == GM_TREE_DICT ? "}" : "]", 1);
	if (tree->keeping_depth == tree->depth && !tree->error) {
		size_t length = tree->kept_bytes - tree->keeping_from - sizeof(length);

		memcpy(tree->kept + tree->keeping_from, &length, sizeof(length));
		tree->keeping_depth = 0;
		tree->pending = 0;
	}
}

static bool again(struct gm_tree *tree, uint64_t key, bool leaf)
{
	size_t at = leaf ? gm_table_get(&tree->known, key, 0) : 0, length;

	if (!at || tree->keeping_depth) {
		if (!tree->keeping_depth)
			tree->pending = leaf ? key : 0;
		return false;
	}
	memcpy(&length, tree->kept + at - 1, sizeof(length));
	before(tree);
	put(tree, tree->kept + at - 1 + sizeof(length), length);
	return true;
}

static void null(struct gm_tree *tree)
{
	before(tree);
	put(tree, "null", 4);
}

static void truth(struct gm_tree *tree, bool is_true)
{
	before(tree);
	put(tree, is_true ? "true" : "false", is_true ? 4 : 5);
}

static void digits(struct gm_tree *tree, uint64_t value, bool negative)
{
	char text[24];
	size_t at = sizeof(text);

	before(tree);
	do {
		text[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	if (negative)
		text[--at] = '-';
	put(tree, text + at, sizeof(text) - at);
}

static void integer(struct gm_tree *tree, int64_t value)
{
	digits(tree, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

static void word(struct gm_tree *tree, uint64_t value)
{
	digits(tree, value, false);
}

/* The shortest text that is read as the same number; JSON has no infinities. */
static void real(struct gm_tree *tree, double value)
{
	char text[40];

	if (!isfinite(value)) {
		null(tree);
		return;
	}
	for (int precision = 15; precision <= 17; precision++) {
		snprintf(text, sizeof(text) - 2, "%.*g", precision, value);
		if (strtod(text, NULL) == value)
			break;
	}
	if (!strpbrk(text, ".e"))
		strcat(text, ".0");
	before(tree);
	put(tree, text, strlen(text));
}

/* What a byte of a text becomes behind a backslash, 0: itself. */
static char escape_of(unsigned char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *found = c ? strchr(from, (char)c) : NULL;

	return found ? to[found - from] : c < 0x20 ? 'u' : '\0';
}

static void text(struct gm_tree *tree, const char *bytes, size_t count)
{
	size_t plain = 0;
	char code[8];

	before(tree);
	put(tree, "\"", 1);
	for (size_t i = 0; i < count; i++) {
		unsigned char c = (unsigned char)bytes[i];
		char escape = c < 0x20 || c == '"' || c == '\\' ? escape_of(c) : '\0';
		/* A lone surrogate: three bytes that are no UTF-8. */
		bool surrogate = c == 0xed && count - i >= 3 && (unsigned char)bytes[i + 1] >= 0xa0;

		if (!escape && !surrogate)
			continue;
		put(tree, bytes + plain, i - plain);
		if (surrogate)
			snprintf(code, sizeof(code), "\\u%04x", 0xd000u |
				 ((unsigned int)(unsigned char)bytes[i + 1] & 0x3f) << 6 |
				 ((unsigned int)(unsigned char)bytes[i + 2] & 0x3f));
		else if (escape == 'u')
			snprintf(code, sizeof(code), "\\u%04x", c);
		else
			snprintf(code, sizeof(code), "\\%c", escape);
		put(tree, code, strlen(code));
		i += surrogate ? 2 : 0;
		plain = i + 1;
	}
	put(tree, bytes + plain, count - plain);
	put(tree, "\"", 1);
}

static void close_json(struct gm_tree *tree)
{
	put(tree, "\n", 1);
}

struct gm_tree *gm_tree_json(FILE *out)
{
	static const struct gm_tree_ops ops = {
		begin, end, null, truth, integer, word, real, text, again, close_json
	};

	return gm_tree_open(out, &ops);
}
