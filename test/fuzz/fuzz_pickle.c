/*
 * fuzz_pickle.c - pickles and JSON of any content: the readers must answer, in bounds and in finite
 * time; what they accept is written as a pickle and read again, and must then be the same.
 *
 * The main() here makes its own inputs: the pickle of PyTorch in test/data with a few bytes changed,
 * cut or moved, programs of random operations, and JSON with a few bytes changed.
 * usage: fuzz_pickle [runs], seeded by $SEED.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/read/documents.h"
#include "tools/torch/torch.h"
#include "tools/write/writer.h"
#include "test/seed.h"

#define SMALL 65536			/* what is larger is not written and read again each time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static long read_well, refused, snapshots;

static void insist(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fuzz_pickle: %s\n", what);
	abort();
}

/* An input, and where its tree lies. */
struct input { struct gm_source source; struct gm_values *values; bool pickle; char *copy, error[256]; };

static void open_input(struct input *in, const uint8_t *data, size_t size)
{
	*in = (struct input){ .copy = malloc(size + 1) };	/* its own block: a read beyond it is seen */
	insist(in->copy != NULL, "out of memory");
	memcpy(in->copy, data, size);
	in->copy[size] = '\0';
	in->pickle = size && data[0] == 0x80;
	if (in->pickle)
		in->copy = realloc(in->copy, size);
	in->source = (struct gm_source){ .bytes = in->copy, .have = size, .whole = true, .fd = -1 };
	in->values = gm_values_open();
	insist(in->values != NULL, "out of memory");
}

static void close_input(struct input *in)
{
	gm_values_close(in->values);
	free(in->copy);
}

static int read_tree(struct input *in, const struct gm_value **ret_root)
{
	int r = (in->pickle ? gm_pickle_read : gm_json_read)(in->values, &in->source, ret_root, in->error,
							     sizeof(in->error));

	insist(r == 0 || r == -ENOMEM || r == -EBADMSG, "an answer that is none");
	insist(r != -EBADMSG || in->error[0], "a refusal without a reason");
	return r;
}

/* How many values a tree has, written out; beyond @most it is too many. */
static size_t count(const struct gm_value *value, size_t most)
{
	size_t sum = value->type == GM_VALUE_NUMBERS ? value->count : 1;

	if (value->type >= GM_VALUE_LIST)
		for (uint32_t i = 0; i < value->count && sum < most; i++)
			sum += count(value->u.items[i], most - sum);
	return sum;
}

static void write_value(struct gm_writer *writer, const struct gm_value *value)
{
	static const enum gm_writer_type types[] = {
		[GM_VALUE_NUMBERS] = GM_WRITER_LIST, [GM_VALUE_LIST] = GM_WRITER_LIST,
		[GM_VALUE_TUPLE] = GM_WRITER_TUPLE, [GM_VALUE_DICT] = GM_WRITER_DICT,
	};

	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_NULL:	gm_writer_null(writer); return;
	case GM_VALUE_BOOL:	gm_writer_bool(writer, value->u.integer); return;
	case GM_VALUE_INT:	gm_writer_int(writer, value->u.integer); return;
	case GM_VALUE_UINT:	gm_writer_word(writer, value->u.word); return;
	case GM_VALUE_REAL:	gm_writer_real(writer, value->u.real); return;
	case GM_VALUE_TEXT:	gm_writer_text(writer, value->u.text, value->count); return;
	default:		break;
	}
	if (value->type != GM_VALUE_TUPLE && gm_writer_again(writer, (uint64_t)(uintptr_t)value, false))
		return;
	gm_writer_begin(writer, types[value->type]);
	for (uint32_t i = 0; i < value->count; i++)
		if (value->type == GM_VALUE_NUMBERS)
			gm_writer_int(writer, value->u.numbers[i]);
		else
			write_value(writer, value->u.items[i]);
	gm_writer_end(writer);
}

static int equal(const struct gm_value *a, const struct gm_value *b)
{
	if (a->type == GM_VALUE_NUMBERS && b->type == GM_VALUE_LIST) {	/* a pickle has no other */
		for (uint32_t i = 0; i < a->count && i < b->count; i++)
			if (a->u.numbers[i] != gm_value_int_at(b, i) || b->u.items[i]->type != GM_VALUE_INT)
				return 0;
		return a->count == b->count;
	}
	if (a->type != b->type || a->count != b->count)
		return 0;
	if (a->type == GM_VALUE_TEXT)
		return !memcmp(a->u.text, b->u.text, a->count);
	if (a->type < GM_VALUE_LIST)
		return a->u.word == b->u.word;
	for (uint32_t i = 0; i < a->count; i++)
		if (!equal(a->u.items[i], b->u.items[i]))
			return 0;
	return 1;
}

static void write_and_read(const struct gm_value *root)
{
	const struct gm_value *again = NULL;
	struct input in;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	struct gm_writer *writer = gm_writer_open(out, true);

	insist(out && writer, "out of memory");
	write_value(writer, root);
	insist(!gm_writer_close(writer), "it could not be written");
	fclose(out);
	open_input(&in, (uint8_t *)text, size);
	insist(!read_tree(&in, &again), "what was written cannot be read");
	insist(equal(root, again), "what was written is something else");
	close_input(&in);
	free(text);
}

/* The tree is gone afterwards. */
static void read_snapshot(struct input *in, const struct gm_value *root)
{
	struct gm_snapshot snapshot;
	char error[256] = "";
	bool torch = false;
	int r = gm_snapshot_read(&snapshot, in->values, root, in->pickle, &torch, error, sizeof(error));

	insist(r == 0 || r == -ENOMEM || (r == -EBADMSG && error[0]), "an answer that is none");
	if (!r && torch)
		insist(!gm_torch_finish(&snapshot), "it could not be finished");
	snapshots += torch;
	gm_snapshot_free(&snapshot);
	in->values = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct gm_value *root = NULL;
	struct input in;

	open_input(&in, data, size);
	if (read_tree(&in, &root)) {
		refused++;
	} else {
		read_well++;
		if (count(root, SMALL) < SMALL)
			write_and_read(root);
		read_snapshot(&in, root);
	}
	close_input(&in);
	return 0;
}

#ifndef GM_LIBFUZZER

static uint64_t state;

static uint32_t below(uint64_t limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)((state * UINT64_C(0x2545f4914f6cdd1d) >> 32) % limit);
}

/* A few bytes changed, taken out or doubled. */
static size_t mutate(uint8_t *input, size_t size, size_t room)
{
	for (unsigned int n = below(6); n-- && size > 2;) {
		size_t at = 1 + below(size - 1), length = 1 + below(20), rest = size - at;

		if (length > rest)
			length = rest;
		switch (below(4)) {
		case 0:
			memmove(input + at, input + at + length, rest - length);
			size -= length;
			break;
		case 1:
			if (size + length > room)
				break;
			memmove(input + at + length, input + at, rest);
			size += length;
			break;
		default:
			input[at] = (uint8_t)below(256);
		}
	}
	return size;
}

/* Random operations, most of which make sense. */
static size_t made_pickle(uint8_t *input)
{
	static const char operations[] = "(((]]]}}})tttaeeessuuuNKKKMJGXXhhqqq0ld\x85\x86\x87\x88\x89\x8a"
					 "\x8c\x8c\x8c\x8c\x94\x94\x94j";
	size_t length = 5 + below(200), at = 2;

	input[0] = 0x80;
	input[1] = (uint8_t)(2 + below(4));
	while (at < length) {
		uint8_t op = (uint8_t)operations[below(sizeof(operations) - 1)];

		input[at++] = op;
		if (op == 'K' || op == 'h' || op == 'q') {
			input[at++] = (uint8_t)below(op == 'K' ? 256 : 4);
		} else if (op == 0x8c || op == 0x8a) {
			unsigned int bytes = below(10);

			input[at++] = (uint8_t)bytes;
			while (bytes--)
				input[at++] = (uint8_t)(op == 0x8c ? 'a' + below(3) : below(256));
		} else if (op == 'X' || op == 'j') {
			memcpy(input + at, "\1\0\0\0a", 5);
			at += op == 'X' ? 5 : 4;
		}
	}
	input[at++] = '.';
	return at;
}

static size_t made_json(uint8_t *input)
{
	static const char *const parts[] = {
		"{", "}", "[", "]", "[9223372036854775807,1]", "[-9223372036854775808]", "[999999999999999999,", ",", ":", "\"a\"", "\"segments\":[", "\"\\u00e4\\ud800\"", "\"\xc3\xa4\"", "1",
		"-1", "1.5e3", "18446744073709551615", "-9223372036854775808", "99999999999999999999", "null", "true",
		"false", "\"frames\":[{\"name\":\"f\",\"line\":3}]", "\"device_traces\":[[{\"action\":\"alloc\"", " ", "\"",
	};
	size_t at = 0;

	input[at++] = below(2) ? '{' : '[';
	for (unsigned int n = below(30); n--;) {
		const char *part = parts[below(sizeof(parts) / sizeof(parts[0]))];

		memcpy(input + at, part, strlen(part));
		at += strlen(part);
	}
	input[at++] = below(2) ? '}' : ']';
	return at;
}

int main(int argc, char **argv)
{
	static const char json[] = "{\"segments\":[{\"device\":0,\"address\":4096,\"total_size\":512,\"blocks\":[{\"size\":512,"
		"\"state\":\"inactive\"}],\"segment_pool_id\":[0,0]}],\"device_traces\":[[{\"action\":\"oom\",\"device_free\":5,"
		"\"size\":1e2,\"frames\":[{\"name\":\"f\\u00e4\",\"filename\":\"g.py\",\"line\":3}]}]]}";
	long runs = argc > 1 ? atol(argv[1]) : 10000;
	static uint8_t corpus[1 << 17], input[1 << 18];
	FILE *file = fopen("test/data/torch-snapshot.pickle", "re");
	size_t size = file ? fread(corpus, 1, sizeof(corpus), file) : 0;

	if (file)
		fclose(file);
	state = test_seed();
	for (long i = 0; i < runs; i++) {
		size_t length;

		if (i % 32 == 0 && size) {		/* large: seldom */
			memcpy(input, corpus, size);
			length = mutate(input, size, sizeof(input));
		} else if (i % 3 == 0) {
			memcpy(input, json, sizeof(json) - 1);
			length = mutate(input, sizeof(json) - 1, sizeof(input));
		} else {
			length = i % 3 == 1 ? made_pickle(input) : made_json(input);
		}
		LLVMFuzzerTestOneInput(input, length);
	}
	printf("# %ld read, %ld refused, %ld snapshots\n", read_well, refused, snapshots);
	/* all must come up often, or the inputs do not reach what they are to test */
	if (!size || read_well < runs / 100 || refused < runs / 4 || snapshots < runs / 100) {
		printf("not ok 1 - fuzz_pickle # the inputs are too much alike, or test/data is missing\n");
		return 1;
	}
	printf("ok 1 - fuzz_pickle\n");
	return 0;
}

#endif
