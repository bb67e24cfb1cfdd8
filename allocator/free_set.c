/*
 * free_set.c - the free blocks of one pool, by stream, best fit: see free_set.h.
 */
#include "allocator/free_set.h"

#include <errno.h>
#include <stdbool.h>

#define EXACT 64u			/* classes 0 to 2 * EXACT - 1 hold one size each */
#define FIRST_STREAMS 16u

static uint32_t class_of(uint64_t size)
{
	uint64_t n = size / GM_GRANULE;
	uint32_t e;

	if (n < EXACT)
		return (uint32_t)n;
	e = 63u - (uint32_t)__builtin_clzll(n);
	return EXACT + (e - 6) * 64 + (uint32_t)((n >> (e - 6)) & 63);
}

/* ---- one treap of free blocks, ordered by (size, address): a class of a free set ---- */

/* The links lie with the sizes and addresses of blocks (struct gm_free_link), so that a walk touches no other memory. A
 * tree, or a place in it, is a pointer to the word that holds the id of its root. */
typedef unsigned __int128 tree_key;	/* (size, address) as one number */

static inline tree_key key_of(uint64_t size, uint64_t address)
{
	return (tree_key)size << 64 | address;
}

static inline bool tree_before(const struct gm_free_link *links, uint32_t a, tree_key key)
{
	return key_of(links[a].size, links[a].address) < key;
}

/* Split @root into the blocks before @key and the rest. */
static inline void tree_split(struct gm_free_link *links, uint32_t root, tree_key key,
				 uint32_t *ret_before, uint32_t *ret_rest)
{
	while (root) {
		if (tree_before(links, root, key)) {
			*ret_before = root;
			ret_before = &links[root].right;
			root = *ret_before;
		} else {
			*ret_rest = root;
			ret_rest = &links[root].left;
			root = *ret_rest;
		}
	}
	*ret_before = GM_NONE;
	*ret_rest = GM_NONE;
}

static inline void tree_insert(struct gm_free_link *links, uint32_t *at, uint32_t block,
				  tree_key key)
{
	struct gm_free_link *link = &links[block];
	uint32_t priority;

	if (!*at) {			/* most often the block is the only one of its class */
		link->left = link->right = GM_NONE;
		*at = block;
		return;
	}
	priority = gm_free_priority(block);
	while (*at && gm_free_priority(*at) >= priority)
		at = tree_before(links, *at, key) ? &links[*at].right : &links[*at].left;
	tree_split(links, *at, key, &link->left, &link->right);
	*at = block;
}

/* Remove @block, and put its two subtrees in its place. */
static inline void tree_unlink(struct gm_free_link *links, uint32_t *at, uint32_t block)
{
	uint32_t a = links[block].left, b = links[block].right;

	while (a && b) {
		if (gm_free_priority(a) >= gm_free_priority(b)) {
			*at = a;
			at = &links[a].right;
			a = *at;
		} else {
			*at = b;
			at = &links[b].left;
			b = *at;
		}
	}
	*at = a ? a : b;
}

/* Return the place of @block; NULL: it is not in the tree. */
static inline uint32_t *tree_place(struct gm_free_link *links, uint32_t *at, uint32_t block)
{
	tree_key key = key_of(links[block].size, links[block].address);

	while (*at && *at != block)
		at = tree_before(links, *at, key) ? &links[*at].right : &links[*at].left;
	return *at ? at : NULL;
}

/* Return the place of the first block not before @key; NULL: none. */
static inline uint32_t *tree_lower_bound(struct gm_free_link *links, uint32_t *at,
					    tree_key key)
{
	uint32_t *found = NULL;

	while (*at) {
		if (tree_before(links, *at, key)) {
			at = &links[*at].right;
		} else {
			found = at;
			at = &links[*at].left;
		}
	}
	return found;
}

/* Return the place of the first block of a tree that is not empty. */
static inline uint32_t *tree_first(struct gm_free_link *links, uint32_t *at)
{
	while (links[*at].left)
		at = &links[*at].left;
	return at;
}

/* Return the last block before @key; GM_NONE: none. */
static inline uint32_t tree_last_before(const struct gm_free_link *links, uint32_t root, tree_key key)
{
	uint32_t found = GM_NONE;

	while (root) {
		if (tree_before(links, root, key)) {
			found = root;
			root = links[root].right;
		} else {
			root = links[root].left;
		}
	}
	return found;
}

/* ---- streams ---- */

static uint32_t stream_hash(uint64_t stream)
{
	stream *= UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(stream >> 32);
}

static __attribute__((noinline)) struct gm_free_stream *
find_stream(const struct gm_free_set *set, uint64_t stream)
{
	for (uint32_t i = stream_hash(stream);; i++) {
		struct gm_free_stream *s = set->streams[i & set->streams_mask];

		if (!s || s->stream == stream)
			return s;
	}
}

static inline struct gm_free_stream *get_stream(struct gm_free_set *set, uint64_t stream)
{
	struct gm_free_stream *s = set->last;

	if (__builtin_expect(!s || s->stream != stream, 0)) {
		s = find_stream(set, stream);
		if (s)
			set->last = s;
	}
	return s;
}

static void put_stream(struct gm_free_stream **table, uint32_t mask, struct gm_free_stream *s)
{
	uint32_t i = stream_hash(s->stream);

	while (table[i & mask])
		i++;
	table[i & mask] = s;
}

/* Drop the streams without free blocks and reuse their structs, because no call reports the end of a stream. */
static void drop_empty(struct gm_free_set *set)
{
	struct gm_free_stream *kept = NULL;

	for (uint32_t i = 0; i <= set->streams_mask; i++) {
		struct gm_free_stream *s = set->streams[i], **list;

		if (!s)
			continue;
		list = s->blocks ? &kept : &set->spare;
		s->next = *list;
		*list = s;
		set->streams[i] = NULL;
	}
	set->streams_count = 0;
	for (; kept; kept = kept->next) {
		put_stream(set->streams, set->streams_mask, kept);
		set->streams_count++;
	}
	set->last = NULL;
}

static int widen(struct gm_free_set *set)
{
	uint32_t mask = set->streams_mask * 2 + 1;
	struct gm_free_stream **table = set->memory(set->arg, (mask + 1) * sizeof(*table));

	if (!table)
		return -ENOMEM;
	for (uint32_t i = 0; i <= set->streams_mask; i++)
		if (set->streams[i])
			put_stream(table, mask, set->streams[i]);
	set->streams = table;
	set->streams_mask = mask;
	return 0;
}

/* Make room for one more stream. Afterwards at least a quarter of the table is free, so this is seldom needed. */
static int make_room(struct gm_free_set *set)
{
	if (2 * (set->streams_count + 1) <= set->streams_mask + 1)
		return 0;
	drop_empty(set);
	return 4 * (set->streams_count + 1) > set->streams_mask + 1 ? widen(set) : 0;
}

static __attribute__((noinline)) int add_stream(struct gm_free_set *set, uint64_t stream)
{
	struct gm_free_stream *s;

	if (make_room(set))
		return -ENOMEM;
	s = set->spare;			/* all its members are 0 except @stream */
	if (s)
		set->spare = s->next;
	else
		s = set->memory(set->arg, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->stream = stream;
	put_stream(set->streams, set->streams_mask, s);
	set->streams_count++;
	set->last = s;
	return 0;
}

int gm_free_set_init(struct gm_free_set *set, const struct gm_block *blocks,
		     struct gm_free_link *links, void *(*memory)(void *, size_t), void *arg)
{
	*set = (struct gm_free_set){ .blocks = blocks, .links = links, .memory = memory, .arg = arg,
				     .streams_mask = FIRST_STREAMS - 1 };
	set->streams = memory(arg, FIRST_STREAMS * sizeof(*set->streams));
	return set->streams ? 0 : -ENOMEM;
}

int gm_free_set_expect(struct gm_free_set *set, uint64_t stream)
{
	return get_stream(set, stream) ? 0 : add_stream(set, stream);
}

/* ---- classes ---- */

static inline __attribute__((always_inline)) int insert(struct gm_free_set *set, uint32_t block, uint64_t size,
							uint64_t born)
{
	const struct gm_block *b = &set->blocks[block];
	struct gm_free_stream *s = get_stream(set, b->stream);
	uint64_t address = __atomic_load_n(&b->address, __ATOMIC_RELAXED);
	struct gm_free_link *link = &set->links[block];
	uint32_t c = class_of(size);

	if (__builtin_expect(!s, 0)) {
		if (add_stream(set, b->stream))
			return -ENOMEM;
		s = set->last;
	}
	link->size = size;
	link->address = address;
	link->born = born;
	tree_insert(set->links, &s->root[c], block, key_of(size, address));
	s->map[c / 64] |= UINT64_C(1) << c % 64;
	s->top |= UINT64_C(1) << c / 64;
	s->blocks++;
	set->count++;
	return 0;
}

int gm_free_set_insert(struct gm_free_set *set, uint32_t block, uint64_t born)
{
	/* Load size and address as single words, because one wide load would wait for the recent stores to both. */
	return insert(set, block, __atomic_load_n(&set->blocks[block].size, __ATOMIC_RELAXED), born);
}

int gm_free_set_insert_as(struct gm_free_set *set, uint32_t block, uint64_t size, uint64_t born)
{
	return insert(set, block, size, born);
}

static inline void take(struct gm_free_set *set, struct gm_free_stream *s, uint32_t c, uint32_t *at)
{
	tree_unlink(set->links, at, *at);
	if (!s->root[c]) {
		s->map[c / 64] &= ~(UINT64_C(1) << c % 64);
		if (!s->map[c / 64])
			s->top &= ~(UINT64_C(1) << c / 64);
	}
	s->blocks--;
	set->count--;
}

void gm_free_set_remove(struct gm_free_set *set, uint32_t block)
{
	struct gm_free_stream *s = get_stream(set, set->blocks[block].stream);
	uint32_t c = class_of(set->links[block].size);
	uint32_t *at = s ? tree_place(set->links, &s->root[c], block) : NULL;

	if (at)
		take(set, s, c, at);
}

/* Return the first class >= @c that is not empty; GM_SIZE_CLASSES: none. */
static uint32_t class_from(const struct gm_free_stream *s, uint32_t c)
{
	uint64_t bits;
	uint32_t word = c / 64;

	if (c >= GM_SIZE_CLASSES)
		return GM_SIZE_CLASSES;
	bits = s->map[word] & ~UINT64_C(0) << c % 64;
	if (!bits) {
		bits = word == 63 ? 0 : s->top & ~UINT64_C(0) << (word + 1);
		if (!bits)
			return GM_SIZE_CLASSES;
		word = (uint32_t)__builtin_ctzll(bits);
		bits = s->map[word];
	}
	return word * 64 + (uint32_t)__builtin_ctzll(bits);
}

/* Return the last class <= @c that is not empty; GM_SIZE_CLASSES: none. */
static uint32_t class_down(const struct gm_free_stream *s, uint32_t c)
{
	uint32_t word = c / 64;
	uint64_t bits = s->map[word] & ~UINT64_C(0) >> (63 - c % 64);

	if (!bits) {
		bits = word ? s->top & ~UINT64_C(0) >> (64 - word) : 0;
		if (!bits)
			return GM_SIZE_CLASSES;
		word = 63u - (uint32_t)__builtin_clzll(bits);
		bits = s->map[word];
	}
	return word * 64 + 63u - (uint32_t)__builtin_clzll(bits);
}

/* Return the place of the first block with (size, address) >= (@size, @address), and its class; NULL: none. */
static inline uint32_t *find(const struct gm_free_set *set, struct gm_free_stream *s, uint64_t size,
			     uint64_t address, uint32_t *ret_class)
{
	uint32_t own = class_of(size), c = class_from(s, own);
	uint32_t *at;

	/* Most often any block of the class is large enough, because the class is a larger one or has only one size. */
	if (c == own && (address || c >= 2 * EXACT)) {
		at = tree_lower_bound(set->links, &s->root[c], key_of(size, address));
		if (at) {
			*ret_class = c;
			return at;
		}
		c = class_from(s, c + 1);
	}
	*ret_class = c;
	return c == GM_SIZE_CLASSES ? NULL : tree_first(set->links, &s->root[c]);
}

static uint32_t at_least(const struct gm_free_set *set, struct gm_free_stream *s, uint64_t size,
			 uint64_t address)
{
	uint32_t class, *at = find(set, s, size, address, &class);

	return at ? *at : GM_NONE;
}

uint32_t gm_free_set_at_least(struct gm_free_set *set, uint64_t stream, uint64_t size,
			      uint64_t address)
{
	struct gm_free_stream *s = get_stream(set, stream);

	return s && s->blocks ? at_least(set, s, size, address) : GM_NONE;
}

uint32_t gm_free_set_take(struct gm_free_set *set, uint64_t stream, uint64_t size, uint64_t below)
{
	struct gm_free_stream *s = get_stream(set, stream);
	uint32_t class, block, *at = s && s->blocks ? find(set, s, size, 0, &class) : NULL;

	if (!at)
		return GM_NONE;
	block = *at;
	if (set->links[block].size >= below)
		return GM_NONE;
	take(set, s, class, at);
	return block;
}

uint32_t gm_free_set_below(struct gm_free_set *set, uint64_t stream, uint64_t size, uint64_t address)
{
	struct gm_free_stream *s = get_stream(set, stream);
	uint32_t c = class_of(size);

	while (s && s->blocks) {
		uint32_t found;

		c = class_down(s, c);
		if (c == GM_SIZE_CLASSES)
			break;
		found = tree_last_before(set->links, s->root[c], key_of(size, address));
		if (found || !c)
			return found;
		c--;
	}
	return GM_NONE;
}

/* Return the next stream with free blocks after the cursor's. Searches the whole unordered table, because this is rare
 * (collection, flushing). */
static struct gm_free_stream *stream_after(const struct gm_free_set *set,
					   const struct gm_free_cursor *cursor)
{
	struct gm_free_stream *after = NULL;

	for (uint32_t i = 0; i <= set->streams_mask; i++) {
		struct gm_free_stream *s = set->streams[i];

		if (s && s->blocks && (!cursor->begun || s->stream > cursor->stream) &&
		    (!after || s->stream < after->stream))
			after = s;
	}
	return after;
}

uint32_t gm_free_set_next(struct gm_free_set *set, struct gm_free_cursor *cursor)
{
	struct gm_free_stream *s = cursor->begun ? get_stream(set, cursor->stream) : NULL;
	uint32_t found = s && s->blocks ? at_least(set, s, cursor->size, cursor->address + 1) : GM_NONE;

	if (!found) {
		s = stream_after(set, cursor);
		found = s ? at_least(set, s, 0, 0) : GM_NONE;
	}
	/* Read size and address from the set's own links, so that the cursor always moves on. The records of blocks are
	 * zeroes if somebody has truncated the journal. */
	if (found)
		*cursor = (struct gm_free_cursor){ s->stream, set->links[found].size, set->links[found].address, true };
	return found;
}

uint64_t gm_free_set_largest(struct gm_free_set *set)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i <= set->streams_mask; i++) {
		const struct gm_free_stream *s = set->streams[i];
		uint32_t c = s && s->blocks ? class_down(s, GM_SIZE_CLASSES - 1) : GM_SIZE_CLASSES;
		uint32_t id = c < GM_SIZE_CLASSES ?
			      tree_last_before(set->links, s->root[c], key_of(UINT64_MAX, 0)) : GM_NONE;

		if (id && set->blocks[id].size > largest)
			largest = set->blocks[id].size;
	}
	return largest;
}
