/*
 * value.c - the arena of a tree of values: how they are made, kept once, and grow. See value.h;
 * value_read.c reads them. One thread.
 */
#include "tools/read/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>


#define CHUNK ((size_t)1 << 18)
#define RECENT ((size_t)1 << 14)	/* integers remembered; a power of two */
#define SHAPES 16			/* lists of names remembered; a power of two */
#define EXACT 0xff			/* room_log2: as many as there are */

struct chunk { struct chunk *next; };

struct recent { int64_t integer; const struct gm_value *value; };

struct entry { uint64_t hash; const struct gm_value *value; };

/* Members of a dict on their way into one: names and values, each behind the other. */
struct apart { const struct gm_value **items; size_t room; };

struct gm_values {
	struct chunk *chunks;
	char *at, *end;			/* free room in the newest chunk */
	size_t bytes, limit;
	struct entry *table;		/* texts and shared containers, open addressing */
	size_t entries, room;		/* room: a power of two */
	bool surrogates;		/* some text may have one */
	struct apart apart;
	const struct gm_value *shapes[SHAPES];	/* names that dicts had lately */
	struct recent recent[RECENT];
};

struct gm_values *gm_values_open(size_t limit_bytes)
{
	struct gm_values *values = calloc(1, sizeof(*values));

	if (!values)
		return NULL;
	values->limit = limit_bytes;
	values->room = 1024;
	values->table = calloc(values->room, sizeof(*values->table));
	if (!values->table) {
		free(values);
		return NULL;
	}
	return values;
}

void gm_values_close(struct gm_values *values)
{
	if (!values)
		return;
	while (values->chunks) {
		struct chunk *next = values->chunks->next;

		free(values->chunks);
		values->chunks = next;
	}
	free(values->table);
	free(values->apart.items);
	free(values);
}

size_t gm_values_bytes(const struct gm_values *values)
{
	return values->bytes;
}

static void *take(struct gm_values *values, size_t bytes)
{
	size_t chunk = CHUNK;
	struct chunk *new;
	void *at;

	bytes = (bytes + 7) & ~(size_t)7;
	if (bytes > (size_t)(values->end - values->at)) {
		if (bytes > chunk - sizeof(*new))
			chunk = bytes + sizeof(*new);
		if (chunk > values->limit - values->bytes)
			return NULL;
		new = malloc(chunk);
		if (!new)
			return NULL;
		values->bytes += chunk;
		new->next = values->chunks;
		values->chunks = new;
		values->at = (char *)(new + 1);
		values->end = (char *)new + chunk;
	}
	at = values->at;
	values->at += bytes;
	return at;
}

static struct gm_value *scalar(struct gm_values *values, enum gm_value_type type)
{
	struct gm_value *value = take(values, sizeof(*value));

	if (value)
		*value = (struct gm_value){ .type = (uint8_t)type };
	return value;
}

const struct gm_value *gm_value_null(void)
{
	static const struct gm_value null = { .type = GM_VALUE_NULL };

	return &null;
}

const struct gm_value *gm_value_bool(bool truth)
{
	static const struct gm_value truths[2] = {
		{ .type = GM_VALUE_BOOL, .u.integer = 0 }, { .type = GM_VALUE_BOOL, .u.integer = 1 }
	};

	return &truths[truth];
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 29);
}

const struct gm_value *gm_value_int(struct gm_values *values, int64_t integer)
{
	struct recent *recent = &values->recent[mix(0, (uint64_t)integer) & (RECENT - 1)];
	struct gm_value *value;

	if (recent->value && recent->integer == integer)
		return recent->value;
	value = scalar(values, GM_VALUE_INT);
	if (value) {
		value->u.integer = integer;
		*recent = (struct recent){ integer, value };
	}
	return value;
}

const struct gm_value *gm_value_uint(struct gm_values *values, uint64_t word)
{
	struct gm_value *value;

	if (word <= INT64_MAX)
		return gm_value_int(values, (int64_t)word);
	value = scalar(values, GM_VALUE_UINT);
	if (value)
		value->u.word = word;
	return value;
}

const struct gm_value *gm_value_real(struct gm_values *values, double real)
{
	struct gm_value *value = scalar(values, GM_VALUE_REAL);

	if (value)
		value->u.real = real;
	return value;
}

/* ---- what is kept once ------------------------------------------------------------------------ */

static bool same(const struct gm_value *value, enum gm_value_type type, const void *content,
		 size_t count)
{
	size_t unit = type == GM_VALUE_TEXT ? 1 : sizeof(value->u.items[0]);
	const void *mine = type == GM_VALUE_TEXT ? (const void *)value->u.text :
			   (const void *)value->u.items;

	return value->type == type && value->count == count &&
	       (!count || !memcmp(mine, content, count * unit));
}

static int make_room(struct gm_values *values)
{
	size_t room = values->room * 2;
	struct entry *table;

	if (values->entries < values->room / 2)
		return 0;
	table = calloc(room, sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (size_t i = 0; i < values->room; i++) {
		size_t at = values->table[i].hash & (room - 1);

		if (!values->table[i].value)
			continue;
		while (table[at].value)
			at = (at + 1) & (room - 1);
		table[at] = values->table[i];
	}
	free(values->table);
	values->table = table;
	values->room = room;
	return 0;
}

/* The place in the table of what equals @content, or of nothing yet. NULL: out of memory. */
static struct entry *find(struct gm_values *values, uint64_t hash, enum gm_value_type type,
			  const void *content, size_t count)
{
	size_t at;

	if (make_room(values))
		return NULL;
	for (at = hash & (values->room - 1); values->table[at].value; at = (at + 1) & (values->room - 1))
		if (values->table[at].hash == hash &&
		    same(values->table[at].value, type, content, count))
			break;
	values->table[at].hash = hash;
	return &values->table[at];
}

const struct gm_value *gm_value_text(struct gm_values *values, const char *text, size_t bytes)
{
	uint64_t hash = mix(GM_VALUE_TEXT, bytes);
	struct gm_value *value;
	struct entry *entry;
	size_t at = 0;
	char *copy;

	if (bytes > UINT32_MAX)
		return NULL;
	for (uint64_t word; at + 8 <= bytes; at += 8) {
		memcpy(&word, text + at, 8);
		hash = mix(hash, word);
	}
	for (; at < bytes; at++)
		hash = mix(hash, (unsigned char)text[at]);
	entry = find(values, hash, GM_VALUE_TEXT, text, bytes);
	if (!entry || entry->value)
		return entry ? entry->value : NULL;
	value = scalar(values, GM_VALUE_TEXT);
	copy = value ? take(values, bytes + 1) : NULL;
	if (!copy)
		return NULL;
	if (bytes)
		memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	values->surrogates |= bytes && memchr(text, 0xed, bytes);
	value->u.text = copy;
	value->count = (uint32_t)bytes;
	entry->value = value;
	values->entries++;
	return value;
}

void gm_values_scrub(struct gm_values *values)
{
	for (size_t i = 0; values->surrogates && i < values->room; i++) {
		const struct gm_value *value = values->table[i].value;
		unsigned char *text = value ? (unsigned char *)(uintptr_t)value->u.text : NULL;

		if (!value || value->type != GM_VALUE_TEXT)
			continue;
		for (size_t at = 0; at + 2 < value->count; at++)
			if (text[at] == 0xed && text[at + 1] >= 0xa0)
				memcpy(text + at, "\xef\xbf\xbd", 3);
	}
	values->surrogates = false;
}

static const struct gm_value *share(struct gm_values *values, enum gm_value_type type,
				    const struct gm_value *const *items, size_t count)
{
	uint64_t hash = mix(type, count);
	struct gm_value *value;
	struct entry *entry;

	if (count > UINT32_MAX)
		return NULL;
	for (size_t i = 0; i < count; i++)
		hash = mix(hash, (uint64_t)(uintptr_t)items[i]);
	entry = find(values, hash, type, items, count);
	if (!entry || entry->value)
		return entry ? entry->value : NULL;
	value = scalar(values, type);
	if (value)
		value->u.items = take(values, count * sizeof(*items));
	if (!value || !value->u.items)
		return NULL;
	if (count)
		memcpy(value->u.items, items, count * sizeof(*items));
	value->count = (uint32_t)count;
	entry->value = value;
	values->entries++;
	return value;
}

/* Room for the parts of @pairs members. NULL: out of memory. */
static const struct gm_value **room_apart(struct gm_values *values, size_t pairs)
{
	struct apart *apart = &values->apart;

	if (apart->room < 2 * pairs + 1) {
		const struct gm_value **larger = realloc(apart->items, (4 * pairs + 64) * sizeof(*larger));

		if (!larger)
			return NULL;
		apart->items = larger;
		apart->room = 4 * pairs + 64;
	}
	return apart->items;
}

/* The list of the names of @pairs members: one for all dicts that have these. */
static const struct gm_value *names_of(struct gm_values *values, const struct gm_value *const *items,
				       size_t pairs)
{
	const struct gm_value **shape, **names;
	size_t same_names = 0;

	shape = &values->shapes[mix(pairs, (uint64_t)(uintptr_t)items[0]) & (SHAPES - 1)];
	if (*shape && (*shape)->count == pairs)
		while (same_names < pairs && (*shape)->u.items[same_names] == items[2 * same_names])
			same_names++;
	if (same_names == pairs)
		return *shape;
	names = room_apart(values, pairs);
	if (!names)
		return NULL;
	for (size_t i = 0; i < pairs; i++)
		names[i] = items[2 * i];
	*shape = share(values, GM_VALUE_LIST, names, pairs);
	return *shape;
}

/* The items of a dict as they lie in it, from names and values in turn. NULL: out of memory. */
static const struct gm_value *const *set_apart(struct gm_values *values, const struct gm_value *const *items,
					       size_t pairs)
{
	const struct gm_value *names = names_of(values, items, pairs);
	const struct gm_value **apart = names ? room_apart(values, pairs) : NULL;

	if (!apart)
		return NULL;
	apart[0] = names;
	for (size_t i = 0; i < pairs; i++)
		apart[1 + i] = items[2 * i + 1];
	return apart;
}

const struct gm_value *gm_value_shared(struct gm_values *values, enum gm_value_type type,
				       const struct gm_value *const *items, size_t count)
{
	if (type == GM_VALUE_DICT && count) {
		items = set_apart(values, items, count / 2);
		count = count / 2 + 1;
	}
	return items || !count ? share(values, type, items, count) : NULL;
}

const struct gm_value *gm_value_plain(struct gm_values *values, enum gm_value_type type,
				      const struct gm_value *const *items, size_t count)
{
	struct gm_value *value = count <= UINT32_MAX ? scalar(values, type) : NULL;

	if (type == GM_VALUE_DICT && count) {
		items = set_apart(values, items, count / 2);
		count = count / 2 + 1;
	}
	if (!items && count)
		return NULL;

	if (value)
		value->u.items = take(values, count * sizeof(*items));
	if (!value || !value->u.items)
		return NULL;
	if (count)
		memcpy(value->u.items, items, count * sizeof(*items));
	value->count = (uint32_t)count;
	return value;
}

const struct gm_value *gm_value_room(struct gm_values *values, size_t count, int64_t **ret_numbers)
{
	struct gm_value *value = count <= UINT32_MAX ? scalar(values, GM_VALUE_NUMBERS) : NULL;

	*ret_numbers = value ? take(values, count * sizeof(**ret_numbers)) : NULL;
	if (!*ret_numbers)
		return NULL;
	value->u.numbers = *ret_numbers;
	value->count = (uint32_t)count;
	return value;
}

const struct gm_value *gm_value_numbers(struct gm_values *values, const int64_t *numbers, size_t count)
{
	int64_t *room;
	const struct gm_value *value = gm_value_room(values, count, &room);

	if (value && count)
		memcpy(room, numbers, count * sizeof(*numbers));
	return value;
}

/* ---- what grows ------------------------------------------------------------------------------- */

struct gm_value *gm_value_container(struct gm_values *values, enum gm_value_type type)
{
	return scalar(values, type);
}

/* How many items fit where those of @value lie. */
static size_t room_of(const struct gm_value *value)
{
	return !value->u.items ? 0 : value->room_log2 == EXACT ? value->count : (size_t)1 << value->room_log2;
}

/* Most containers are filled at once: room for that, and twice as much whenever more comes. */
static int append(struct gm_values *values, struct gm_value *to, const struct gm_value *const *items,
		  size_t count)
{
	size_t needed = to->count + count;

	if (count > UINT32_MAX - to->count)
		return -ENOMEM;
	if (needed > room_of(to)) {
		uint8_t log2 = to->count ? 63 - (uint8_t)__builtin_clzll(2 * needed - 1) : EXACT;
		const struct gm_value **larger = take(values, sizeof(*larger) * (log2 == EXACT ? needed :
										  (size_t)1 << log2));

		if (!larger)
			return -ENOMEM;
		if (to->count)
			memcpy(larger, to->u.items, to->count * sizeof(*larger));
		to->u.items = larger;
		to->room_log2 = log2;
	}
	memcpy(to->u.items + to->count, items, count * sizeof(*items));
	to->count = (uint32_t)needed;
	return 0;
}

/* Of a dict that was filled at once the names are others', too: it gets a list of its own. */
static int append_members(struct gm_values *values, struct gm_value *to, const struct gm_value *const *items,
			  size_t pairs)
{
	struct gm_value *names = (struct gm_value *)(uintptr_t)to->u.items[0];
	int r = 0;

	if (to->room_log2 == EXACT) {
		const struct gm_value *others = names;

		names = gm_value_container(values, GM_VALUE_LIST);
		r = names ? append(values, names, others->u.items, others->count) : -ENOMEM;
		if (!r)
			to->u.items[0] = names;
	}
	for (size_t i = 0; !r && i < pairs; i++) {
		r = append(values, names, items + 2 * i, 1);
		if (!r)
			r = append(values, to, items + 2 * i + 1, 1);
	}
	return r;
}

int gm_value_append(struct gm_values *values, struct gm_value *to,
		    const struct gm_value *const *items, size_t count)
{
	if (!count)
		return 0;
	if (to->type == GM_VALUE_DICT && to->count)
		return append_members(values, to, items, count / 2);
	if (to->type == GM_VALUE_DICT) {
		items = set_apart(values, items, count / 2);
		count = count / 2 + 1;
	}
	return items ? append(values, to, items, count) : -ENOMEM;
}
