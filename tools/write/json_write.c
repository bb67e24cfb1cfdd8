/*
 * json_write.c - a tree of values as JSON: see tree_write.h. One thread.
 *
 * JSON cannot refer to what it has said before. The texts of leaves (frames) and of lists of them
 * (stacks) are kept and copied, so that a stack said a million times is made up once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/json_flat.h"
#include "tools/show/show.h"
#include "tools/write/tree_internal.h"

#define BYTES_MOST (UINT64_C(1) << 33)
#define NAME_MOST ((size_t)64)		/* letters of a name that is put at once */
#define KEPT_MOST ((size_t)128 << 20)	/* bytes of lists; leaves are kept however many they are */

#define LENGTH_BITS 24			/* what is known of one: where it begins, and how long it is */
#define LENGTH ((UINT64_C(1) << LENGTH_BITS) - 1)

/* What is larger is no leaf: it is not kept. */
static const size_t one_most[2] = { (size_t)1 << 16, (size_t)1 << 20 };

/* ---- what is kept ----------------------------------------------------------------------------- */

/* The text of the one under way, of which a part may be in the other that is under way, too. */
static size_t length_of(const struct gm_tree_kept *kept)
{
	return kept->depth ? kept->count - kept->from : 0;
}

/* The one under way is none after all: it goes out, but for what the other has, too. */
static void forget(struct gm_tree *tree, struct gm_tree_kept *kept)
{
	const struct gm_tree_kept *other = &tree->kept[kept == tree->kept];
	size_t length = length_of(kept), others = length_of(other);

	if (length > others)
		gm_sink_put(&tree->sink, kept->bytes + kept->from, length - others);
	kept->count = kept->from;
	kept->depth = 0;
	kept->pending = 0;
}

/* What moves may be on its way out. */
static int keep(struct gm_tree *tree, struct gm_tree_kept *kept, const char *bytes, size_t count)
{
	if (kept->count + count > kept->room) {
		size_t room = (kept->room + count) * 2 + 4096;
		char *larger;

		gm_sink_flush(&tree->sink);
		larger = realloc(kept->bytes, room);
		if (!larger)
			return -ENOMEM;
		kept->bytes = larger;
		kept->room = room;
	}
	memcpy(kept->bytes + kept->count, bytes, count);
	kept->count += count;
	return 0;
}

/* One begins at @depth. It is not asked for before it ends. */
static void begin_kept(struct gm_tree_kept *kept, unsigned int depth)
{
	kept->from = kept->count;
	kept->depth = depth;
}

/* One ends. What is in no other goes out, from where it is. */
static void end_kept(struct gm_tree *tree, struct gm_tree_kept *kept)
{
	uint64_t length = length_of(kept);

	if (gm_table_put(&kept->places, kept->pending, 0, (uint64_t)kept->from << LENGTH_BITS | length))
		tree->error = -ENOMEM;
	kept->depth = 0;
	kept->pending = 0;
	if (!tree->kept[0].depth && !tree->kept[1].depth)
		gm_sink_put_kept(&tree->sink, kept->bytes + kept->from, length);
}

static __attribute__((noinline)) void put_to_keep(struct gm_tree *tree, const char *bytes, size_t count)
{
	for (int i = 0; i < 2; i++) {
		struct gm_tree_kept *kept = &tree->kept[i];

		if (kept->depth && length_of(kept) + count > one_most[i])
			forget(tree, kept);
	}
	for (int i = 0; i < 2 && !tree->error; i++)
		if (tree->kept[i].depth && keep(tree, &tree->kept[i], bytes, count))
			tree->error = -ENOMEM;
	if (!tree->kept[0].depth && !tree->kept[1].depth)
		gm_sink_put(&tree->sink, bytes, count);
}

/* What is kept goes out when it ends. */
static inline void put(struct gm_tree *tree, const char *bytes, size_t count)
{
	tree->written += count;
	if (tree->kept[0].depth || tree->kept[1].depth)
		put_to_keep(tree, bytes, count);
	else
		gm_sink_put(&tree->sink, bytes, count);
}

/* Leaves go into lists of them, too, and these may move meanwhile; lists do not. */
static void put_kept(struct gm_tree *tree, const char *bytes, size_t count)
{
	if (tree->kept[0].depth || tree->kept[1].depth) {
		put(tree, bytes, count);
		return;
	}
	tree->written += count;
	gm_sink_put_kept(&tree->sink, bytes, count);
}

/* ---- the tree --------------------------------------------------------------------------------- */

/* Something comes: what stands before it? */
static void before(struct gm_tree *tree)
{
	struct gm_tree_level *level = &tree->levels[tree->depth];

	if (!tree->depth)
		return;
	if (level->named && !level->colon)
		put(tree, ":", 1);
	else if (level->begun && !level->named)
		put(tree, ",", 1);
	level->colon = false;
	level->begun = true;
	level->named = level->type == GM_TREE_DICT && !level->named;
}

/* Can it still be written? Looked at where a container begins, and at the end, not at every byte. */
static void look(struct gm_tree *tree)
{
	if (tree->sink.error || tree->written > BYTES_MOST)
		tree->error = tree->sink.error ? tree->sink.error : -EMSGSIZE;
}

static void begin(struct gm_tree *tree, enum gm_tree_type type)
{
	look(tree);
	before(tree);
	for (int i = 0; i < 2; i++)
		if (tree->kept[i].pending && !tree->kept[i].depth)
			begin_kept(&tree->kept[i], tree->depth + 1);
	put(tree, type == GM_TREE_DICT ? "{" : "[", 1);
}

static void end(struct gm_tree *tree)
{
	put(tree, tree->levels[tree->depth].type == GM_TREE_DICT ? "}" : "]", 1);
	for (int i = 0; i < 2 && !tree->error; i++)
		if (tree->kept[i].depth == tree->depth)
			end_kept(tree, &tree->kept[i]);
}

static bool again(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort)
{
	struct gm_tree_kept *kept = &tree->kept[sort == GM_TREE_LEAVES];
	uint64_t known;

	if (sort == GM_TREE_OTHER) {
		for (int i = 0; i < 2; i++)
			if (!tree->kept[i].depth)
				tree->kept[i].pending = 0;
		return false;
	}
	if (kept->depth)			/* in another of its sort: written out */
		return false;
	known = gm_table_get(&kept->places, key, 0);
	if (!known) {
		kept->pending = sort == GM_TREE_LEAF || kept->count < KEPT_MOST ? key : 0;
		return false;
	}
	before(tree);
	put_kept(tree, kept->bytes + (known >> LENGTH_BITS), known & LENGTH);
	return true;
}

static void expect(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort, bool soon)
{
	struct gm_tree_kept *kept = &tree->kept[sort == GM_TREE_LEAVES];
	uint64_t known;

	if (!soon) {
		gm_table_fetch(&kept->places, key, 0);
		return;
	}
	known = gm_table_get(&kept->places, key, 0);
	for (size_t at = 0; at < 4 && known; at++)	/* what is behind it comes by itself */
		__builtin_prefetch(kept->bytes + (known >> LENGTH_BITS) + 64 * at);
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
	char room[24], *at = gm_sink_digits(room, value, negative);

	before(tree);
	put(tree, at, (size_t)(room + sizeof(room) - at));
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

	return found ? to[found - from] : c < 0x20 || c == 0x7f ? 'u' : '\0';
}

/* What begins at @at and cannot stand in a text, or would be obeyed by a terminal: how many bytes
 * it has, 0: it is none of those. */
static size_t odd_bytes(const unsigned char *at, size_t left)
{
	if (*at < 0x80)
		return 1;
	if (*at == 0xed)			/* a lone surrogate */
		return left >= 3 && at[1] >= 0xa0 ? 3 : 0;
	return gm_show_control((const char *)at);
}

static void put_code(struct gm_tree *tree, const unsigned char *bytes, size_t count)
{
	char code[8], escape = escape_of(bytes[0]);
	unsigned int value = count == 1 ? bytes[0] : count == 2 ?
			     (bytes[0] & 0x1fu) << 6 | (bytes[1] & 0x3fu) :
			     (bytes[0] & 0xfu) << 12 | (bytes[1] & 0x3fu) << 6 | (bytes[2] & 0x3fu);

	if (count > 1 || escape == 'u')
		snprintf(code, sizeof(code), "\\u%04x", value);
	else
		snprintf(code, sizeof(code), "\\%c", escape);
	put(tree, code, strlen(code));
}

/* Most texts have none of these; of some a letter begins so. */
static inline bool is_odd(unsigned char c)
{
	if (c < 0x7f)
		return c < 0x20 || c == '"' || c == '\\';
	return c == 0x7f || c == 0xed || c == 0xc2 || c == 0xd8 || c == 0xe2;
}

static void text(struct gm_tree *tree, const char *bytes, size_t count)
{
	size_t plain = 0, odd;

	before(tree);
	put(tree, "\"", 1);
	for (size_t i = 0; i < count; i++) {
		if (count - i >= 8 && gm_flat_plain(bytes + i)) {
			i += 7;
			continue;
		}
		odd = is_odd((unsigned char)bytes[i]) ? odd_bytes((const unsigned char *)bytes + i, count - i) : 0;
		if (!odd)
			continue;
		put(tree, bytes + plain, i - plain);
		put_code(tree, (const unsigned char *)bytes + i, odd);
		i += odd - 1;
		plain = i + 1;
	}
	put(tree, bytes + plain, count - plain);
	put(tree, "\"", 1);
}

/* Can all of it stand in a text as it is? */
static bool is_plain(const char *bytes, size_t count)
{
	size_t i = 0;

	while (count - i >= 8 && gm_flat_plain(bytes + i))
		i += 8;
	while (i < count && !is_odd((unsigned char)bytes[i]))
		i++;
	return i == count;
}

/* With what comes before and behind it at once. */
static void name(struct gm_tree *tree, const char *string)
{
	struct gm_tree_level *level = &tree->levels[tree->depth];
	size_t length = strlen(string);
	char whole[NAME_MOST + 4] = ",\"";

	if (length > NAME_MOST || !is_plain(string, length)) {
		text(tree, string, length);
		return;
	}
	memcpy(whole + 2, string, length);
	memcpy(whole + 2 + length, "\":", 2);
	put(tree, whole + !level->begun, length + 4 - !level->begun);
	level->begun = true;
	level->named = true;
	level->colon = true;
}

static void close_json(struct gm_tree *tree)
{
	put(tree, "\n", 1);
	look(tree);
}

struct gm_tree *gm_tree_json(FILE *out)
{
	static const struct gm_tree_ops ops = {
		begin, end, null, truth, integer, word, real, text, name, again, expect, close_json
	};

	return gm_tree_open(out, &ops);
}
