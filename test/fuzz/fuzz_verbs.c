/*
 * fuzz_verbs.c - every verb of gpumem on inputs of any content: it answers, in bounds and in finite
 * time; what it cannot read it refuses with a line and exit 3; what it says for machines is well
 * formed whatever it was given.
 *
 * The main() here changes good inputs as somebody would who knows them: a snapshot of ours, PyTorch's
 * as JSON and as pickle, a journal, a trace; numbers to their extremes, columns of unequal length, ids out of
 * range, members that are missing, twice or of another type, deep nesting, huge texts, text that is
 * not UTF-8, NaN; and files of something else. The verbs run in this process.
 *
 * usage: fuzz_verbs [runs], seeded by $SEED (test/seed.h); FUZZ_ONE=N does run N alone and
 * shows what the verb said.
 */
#include "test/unit/journal/journal_builder.h"
#include "test/seed.h"

#define main gpumem_main
int gpumem_main(int argc, char **argv);
#include "tools/verbs/main.c"
#undef main

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

#include "tools/read/documents.h"
#include "tools/top/top.h"
#include "tools/write/writer.h"

#define ROOM ((size_t)1 << 22)		/* of an input */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is run: F stands for the input, G for a good snapshot, T for a good trace, S for what a recording
 * counted. The first letter says what comes out: text, json, lines of json, a pickle, a verdict (exit 1 is one). */
static const char *const commands[] = {
	"- summary F", "j summary --json F", "- summary -d 0 F", "- summary -d host F", "- summary F G",
	"- events F", "- events --csv F", "l events --jsonl F", "- events -a alloc,free -n 5 -d 0 F",
	"- events --address 7f0000000000 F", "- events --since -1 --until 3 --min-size 1KiB -k device F",
	"- events --stack main --stream 0 F", "l events --jsonl --stack cuda F",
	"- leaks F", "j leaks --json F", "- leaks G F", "j leaks --json F G", "- leaks -d host -n 3 F",
	"- diff F G", "j diff --json --by stack F G", "- diff --by module G F", "j diff --json --all --by kind F G",
	"- diff --by size F G", "- diff --by stream F G",
	"- flame F", "- flame -w peak F", "- flame -w count F", "- flame -w churn -d 0 F",
	"- view F", "- view F G",
	"- summary --by annotation F", "j summary --json --by annotation F", "- summary --level driver F",
	"- diff --by annotation F G", "j diff --json --all --level driver --by annotation G F",
	"- flame --by annotation -f folded -w bytes F", "j flame --by annotation -f speedscope -w peak F",
	"V check --json --by annotation --max-peak 1 --no-leaks F", "v check --by annotation --max-peak 1 --no-leaks F",
	"- flame -f folded -w peak F", "j flame -f speedscope -w count F", "j flame -f speedscope F",
	"- summary -d 7 F", "- events -d 7 --last 3 F", "- merge -d 7 F G", "- leaks -s F G", "- leaks -s G F",
	"v check --no-leaks -s F G", "v replay --verify F T", "v replay --verify G F", "v replay --verify S F",
	"- replay --conf max_split_size_mb:64,roundup_power2_divisions:4,garbage_collection_threshold:0.5 --limit 1GiB F",
	"- replay --capacity 1MiB F", "j replay --json -d 0 F",
	"v check --max-peak 1GiB --max-reserved 1GiB --max-stack 1MiB --max-fragmentation 1% --no-leaks --max-ooms 0 F",
	"V check --json --max-peak 1 --max-reserved 1 --max-stack 1 --max-fragmentation 0 --no-leaks --max-ooms 0 F",
	"p convert --to pickle F", "p convert --to pickle F", "j convert --to pytorch-json F",
	"j convert --to chrome F", "- convert --to csv F", "- convert --to rmm F", "j convert --to speedscope F",
	"- convert --to folded F", "- convert --to prometheus F", "j convert --to gpumem F",
	"j convert --to gpumem --last 1ms --min-size 1KiB F", "p convert --to pickle --since -10ms -d 0 F",
	"j convert --to chrome -d host --last 0 F", "j convert --to pytorch-json --min-size 1MiB --since 1us F",
	"- merge F G", "j merge --json G F", "- replay F", "j replay --json F", "- replay --search F",
	"j replay --search --json F", "j symbolize --no-inlines F",
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))
#define SYMBOLIZE (COMMANDS - 1)	/* it starts a process: seldom */

static int terminal;			/* where this program's own lines go */
static int out_fd, err_fd, input_fd;	/* memfds: stdout, stderr, the input */
static char input_path[64], trace_path[64], good_path[] = "test/data/gpumem-snapshot.json",
	    stats_path[] = "test/traces/streams.stats.json";
static long done_well, refused, found_wanting;
static unsigned long sampled;		/* looks of gpumem top that could read what they saw */
static uint64_t seed, *run_number;	/* the latter for both processes: below */
static double slowest;
static uint64_t slowest_run;

__attribute__((format(printf, 1, 2)))
static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vdprintf(terminal, format, args);
	va_end(args);
}

static void show(const char *name, int fd)
{
	char text[6000];
	ssize_t n = pread(fd, text, sizeof(text), 0);

	say("# ---- %s\n%.*s\n", name, (int)(n > 0 ? n : 0), text);
}

static void insist(int condition, const char *command, const char *what)
{
	if (condition)
		return;
	say("# %s\n# fuzz_verbs: %s (SEED=%llu FUZZ_ONE=%llu)\n", command, what, (unsigned long long)seed,
	    (unsigned long long)(run_number ? *run_number : 0));
	show("stderr", err_fd);
	show("stdout", out_fd);
	abort();
}

/* ---- one run ---------------------------------------------------------------------------------- */

static int split(const char *command, char *words, char **argv)
{
	int argc = 0;

	argv[argc++] = (char *)(uintptr_t)"gpumem";
	strcpy(words, command + 2);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = !strcmp(word, "F") ? input_path : !strcmp(word, "G") ? good_path :
			       !strcmp(word, "T") ? trace_path : !strcmp(word, "S") ? stats_path : word;
	argv[argc] = NULL;
	return argc;
}

/* Does this gpumem have the verb, with the option? */
static bool known(const char *command)
{
	char words[256], *argv[32];
	int argc = split(command, words, argv);

	if (!gm_verb_find(argv[1]))
		return false;
	for (int i = 2; i < argc; i++) {
		const struct gm_opt *opt = gm_opts;

		if (strncmp(argv[i], "--", 2))
			continue;
		while (opt->name && (strcmp(opt->verb, argv[1]) || strcmp(opt->name, argv[i] + 2)))
			opt++;
		if (!opt->name)
			return false;
	}
	return true;
}

static void check_json(const char *command, const char *text, size_t length)
{
	struct gm_values *values = gm_values_open();
	struct gm_source source = { .bytes = (char *)(uintptr_t)text, .have = length, .whole = true, .fd = -1 };
	const struct gm_value *root = NULL;
	char error[256] = "";

	insist(values && !gm_json_read(values, &source, &root, error, sizeof(error)), command,
	       "what it printed is not JSON");
	gm_values_close(values);
}

static void check_pickle(const char *command, const char *text, size_t length)
{
	struct gm_values *values = gm_values_open();
	struct gm_source source = { .bytes = (char *)(uintptr_t)text, .have = length, .whole = true, .fd = -1 };
	const struct gm_value *root = NULL;
	char error[256] = "";

	insist(values && !gm_pickle_read(values, &source, &root, error, sizeof(error)), command,
	       "what it printed is not a pickle");
	gm_values_close(values);
}

static void check_output(const char *command, int status)
{
	off_t length = lseek(out_fd, 0, SEEK_END), said = lseek(err_fd, 0, SEEK_END);
	char *text, *line, *next;

	/* a file of suppressions that has a wrong line is a wrong option */
	insist(status == 0 || status == 1 || status == 3 || (status == 2 && strstr(command, "-s F")), command,
	       "an exit status that is none");
	insist(status != 1 || command[0] == 'v' || command[0] == 'V', command, "exit 1, without a check");
	insist(status < 2 || said > 8, command, "a refusal without a word");
	done_well += status == 0;
	found_wanting += status == 1;
	refused += status > 1;
	if (status > 1)
		return;
	text = malloc((size_t)length + 1);
	insist(text && pread(out_fd, text, (size_t)length, 0) == length, command, "out of memory");
	text[length] = '\0';
	insist(command[0] == 'p' || gm_value_is_text((unsigned char *)text, (size_t)length), command,
	       "what it printed is not UTF-8");
	if (command[0] == 'j' || command[0] == 'V')
		check_json(command, text, (size_t)length);
	if (command[0] == 'p')
		check_pickle(command, text, (size_t)length);
	for (line = text; command[0] == 'l' && *line; line = next + 1) {
		next = strchr(line, '\n');
		insist(next != NULL, command, "a line without its end");
		*next = '\0';
		check_json(command, line, (size_t)(next - line));
	}
	free(text);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_command(const char *command)
{
	char words[256], *argv[32];
	int argc = split(command, words, argv), status;
	double start = now();

	if (ftruncate(out_fd, 0) || ftruncate(err_fd, 0))
		abort();
	lseek(STDOUT_FILENO, 0, SEEK_SET);
	lseek(STDERR_FILENO, 0, SEEK_SET);
	optind = 0;
	alarm(60);			/* one that does not end */
	status = gpumem_main(argc, argv);
	alarm(0);
	fflush(stdout);
	clearerr(stdout);
	if (now() - start > slowest) {
		slowest = now() - start;
		slowest_run = run_number ? *run_number : 0;
	}
	check_output(command, status);
}

static void begin(void)
{
	if (input_fd)
		return;
	terminal = dup(STDOUT_FILENO);
	out_fd = memfd_create("out", MFD_CLOEXEC);
	err_fd = memfd_create("err", MFD_CLOEXEC);
	input_fd = memfd_create("input", MFD_CLOEXEC);
	if (terminal < 0 || out_fd < 0 || err_fd < 0 || input_fd < 0 || dup2(out_fd, STDOUT_FILENO) < 0 ||
	    dup2(err_fd, STDERR_FILENO) < 0)
		abort();
	snprintf(input_path, sizeof(input_path), "/proc/self/fd/%d", input_fd);
}

/* The first byte says which command, the rest is the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *command = commands[(size ? data[0] : 0) % COMMANDS];

	begin();
	if (!known(command))
		return 0;
	if (ftruncate(input_fd, 0) || (size > 1 && pwrite(input_fd, data + 1, size - 1, 0) != (ssize_t)size - 1))
		abort();
	run_command(command);
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

/* ---- changes to what jansson has -------------------------------------------------------------- */

static json_t *some_number(void)
{
	static const int64_t numbers[] = {
		0, 1, -1, 2, 3, 7, 63, 64, 255, 256, 511, 512, 4096, 65536, 1 << 20, INT32_MAX, INT32_MIN,
		UINT32_MAX, INT64_C(1) << 32, INT64_C(1) << 52, INT64_C(1) << 53, INT64_C(1) << 62, INT64_MAX,
		INT64_MAX - 1, INT64_MAX - 511, INT64_MIN, INT64_MIN + 1, 1000000000000, 1795202645674026,
	};
	static const double reals[] = { 0.5, -0.0, 1e18, 1e19, -1e300, 5e-324, 7.0, 4096.0, 0x1p63, -0x1p63 };

	if (!below(12))
		return json_real(reals[below(10)]);
	if (!below(6))
		return json_integer((json_int_t)((uint64_t)below(UINT32_MAX) << below(33)));
	return json_integer(numbers[below(sizeof(numbers) / sizeof(numbers[0]))]);
}

static json_t *some_text(void)
{
	static const char *const texts[] = {
		"", "alloc", "free_completed", "free_requested", "segment_alloc", "segment_free", "segment_map",
		"segment_unmap", "oom", "snapshot", "annotate", "device", "host", "ipc", "graph", "array", "vmm", "pool",
		"managed", "active_allocated", "active_pending_free", "inactive", "small", "large", "START", "END", "MARK",
		"%s%n%d", "\n\"\\;,", "<script>&</script>", "]]>", "\x1b[2J\x7f\x01", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
		"/proc/self/mem", "/dev/zero", "../../../../etc/passwd", ".py", "gpumem-snapshot", "{}", "crash",
	};
	uint32_t which = below(sizeof(texts) / sizeof(texts[0]) + 1);
	size_t length = below(2) ? 1 + below(3000) : (size_t)1 << (10 + below(8));
	char *huge;
	json_t *json;

	if (which < sizeof(texts) / sizeof(texts[0]))
		return json_string(texts[which]);
	huge = malloc(length + 4);
	memset(huge, below(2) ? 'A' : ';', length + 4);
	if (below(2)) {			/* letters of three bytes: whoever cuts will cut one */
		length -= length % 3;
		for (size_t i = 0; i < length; i += 3)
			memcpy(huge + i, "\xe2\x82\xac", 3);
	}
	json = json_stringn(huge, length);
	free(huge);
	return json;
}

static json_t *something(void)
{
	json_t *nest;

	switch (below(10)) {
	case 0:	return json_null();
	case 1:	return json_boolean(below(2));
	case 2:	return json_array();
	case 3:	return json_object();
	case 4: case 5: case 6: return some_number();
	case 7: case 8: return some_text();
	default: break;
	}
	nest = some_number();
	for (uint32_t depth = 1 + below(70); depth--;) {
		json_t *around = below(2) ? json_array() : json_object();

		if (json_is_array(around))
			json_array_append_new(around, nest);
		else
			json_object_set_new(around, below(2) ? "frames" : "x", nest);
		nest = around;
	}
	return nest;
}

/* A number gets another, a text another; sometimes anything. */
static json_t *instead_of(const json_t *value)
{
	if (json_is_number(value) && below(8)) {
		json_int_t near = json_integer_value(value);

		return below(3) ? some_number() : json_integer((json_int_t)((uint64_t)near + below(5) - 2));
	}
	if (json_is_string(value) && below(8))
		return some_text();
	return something();
}

static void change_list(json_t *list)
{
	size_t length = json_array_size(list), at = length ? below(length) : 0;

	switch (below(6)) {
	case 0:			/* a column shorter than its neighbours */
		while (json_array_size(list) > at)
			json_array_remove(list, json_array_size(list) - 1);
		break;
	case 1:
		json_array_remove(list, at);
		break;
	case 2:
		json_array_insert_new(list, at, something());
		break;
	case 3:			/* something twice, or often */
		for (uint32_t n = below(2) ? 1 : below(300); length && n--;)
			json_array_append(list, json_array_get(list, at));
		break;
	case 4:
		if (length > 1) {
			json_t *other = json_incref(json_array_get(list, below(length)));

			json_array_set(list, below(length), json_array_get(list, at));
			json_array_set_new(list, at, other);
		}
		break;
	default:
		if (length)
			json_array_set_new(list, at, instead_of(json_array_get(list, at)));
	}
}

static void change_object(json_t *object)
{
	static const char *const names[] = { "frames", "segments", "address", "size", "device", "x", "", "stack" };
	size_t length = json_object_size(object), at = length ? below(length) : 0;
	void *member = json_object_iter(object);

	while (member && at--)
		member = json_object_iter_next(object, member);
	if (!member || !below(8))
		json_object_set_new(object, names[below(8)], something());
	else if (!below(4))
		json_object_del(object, json_object_iter_key(member));
	else
		json_object_iter_set_new(object, member, instead_of(json_object_iter_value(member)));
}

/* Change the @at-th list or object below @value. Returns how many were passed. */
static size_t change_at(json_t *value, size_t at)
{
	size_t passed = 1, i;
	json_t *item;
	const char *name;

	if (!json_is_array(value) && !json_is_object(value))
		return 0;
	if (!at) {
		if (json_is_array(value))
			change_list(value);
		else
			change_object(value);
		return SIZE_MAX / 2;
	}
	json_array_foreach(value, i, item)
		if (passed < SIZE_MAX / 4)
			passed += passed <= at ? change_at(item, at - passed) : 0;
	json_object_foreach(value, name, item) {
		if (passed > SIZE_MAX / 4)
			break;
		passed += passed <= at ? change_at(item, at - passed) : 0;
	}
	return passed;
}

static size_t containers_of(const json_t *value)
{
	size_t sum = json_is_array(value) || json_is_object(value), i;
	const json_t *item;
	const char *name;

	json_array_foreach(value, i, item)
		sum += containers_of(item);
	json_object_foreach((json_t *)(uintptr_t)value, name, item)
		sum += containers_of(item);
	return sum;
}

/* ---- changes to bytes ------------------------------------------------------------------------- */

static size_t change_bytes(uint8_t *input, size_t size)
{
	static const char *const parts[] = {
		"NaN", "Infinity", "-Infinity", "1e999", "-0", "00", "\xff", "\xed\xa0\x80", "\xc0\x80", "\\ud800", "\\u0000",
		",", "]", "}", "{", "[", "\"", ":", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
		"\"size\":9223372036854775808,", "\"addr\":[1],", "\"stacks\":5,", "99999999999999999999", "-9223372036854775809", "\0",
	};

	for (uint32_t n = 1 + below(4); n-- && size > 4;) {
		size_t at = below(size), length = 1 + below(30);
		const char *part = parts[below(sizeof(parts) / sizeof(parts[0]))];

		switch (below(5)) {
		case 0:
			input[at] = (uint8_t)below(256);
			break;
		case 1:
			length = length < size - at ? length : size - at;
			memmove(input + at, input + at + length, size - at - length);
			size -= length;
			break;
		case 2:
			if (!below(4))
				size = at + 1;
			break;
		default:
			length = strlen(part) ? strlen(part) : 1;
			if (size + length > ROOM)
				break;
			memmove(input + at + length, input + at, size - at);
			memcpy(input + at, part, length);
			size += length;
		}
	}
	return size;
}

/* ---- inputs ----------------------------------------------------------------------------------- */

static json_t *ours, *torch;
static struct jb jb;
static uint8_t *input;

static size_t dump(const json_t *json, bool pickle)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	struct gm_writer *writer = gm_writer_open(out, pickle);

	gm_writer_put(writer, json);
	if (gm_writer_close(writer))	/* nested deeper than is written */
		size = 0;
	fclose(out);
	if (size > ROOM / 2)
		size = ROOM / 2;
	if (size)
		memcpy(input, text, size);
	free(text);
	return size;
}

static size_t changed_json(bool pickle)
{
	json_t *copy = json_deep_copy(below(2) || pickle ? torch : ours);
	size_t containers = containers_of(copy), size;

	for (uint32_t n = below(10) ? 1 + below(8) : 0; n--;)
		change_at(copy, below(containers));
	size = dump(copy, pickle);
	json_decref(copy);
	return below(5) ? size : change_bytes(input, size);
}

static void build_journal(void)
{
	static const uint32_t frames[] = { 1, 2, 1 };
	uint32_t stack;

	jb_new(&jb, (struct jb_plan){ 64, 64, 8, 4096 });
	for (uint32_t slot = 1; slot < 5; slot++)
		jb_thread(&jb, slot, 100 * slot);
	jb_device(&jb, 0, "A device", 1ull << 36);
	jb_module(&jb, "/usr/lib/libcublas.so.12", 0x10000);
	jb_frame(&jb, 1, 0x44, jb_string(&jb, "cublasCreate"));
	jb_frame(&jb, 1, 0x88, jb_string(&jb, "main"));
	stack = jb_stack(&jb, frames, 3);
	for (uint32_t i = 0; i < 24; i++) {
		struct jb_what what = {
			.address = 0x7000000 + i * 0x200000ull, .size = 0x100000 + i,
			.op = (uint64_t)(1 + i % 4) << 40 | (i + 1), .tsc = 10 * i + 10, .module = 1,
			.stack = stack, .kind = (uint8_t)(i % GM_KIND_COUNT), .domain = (uint8_t)(i & 1),
		};

		if (what.kind == GM_KIND_HOST)
			what.domain = GM_DOMAIN_HOST;
		jb_alloc(&jb, 1 + i % 4, what);
	}
	jb.h->clock.stamp[1] = jb.h->clock.monotonic_ns[1] = 1000;
	jb.h->clock.wall_ns[1] = 1700000000000000000;
}

static size_t changed_journal(void)
{
	size_t size = jb.bytes < ROOM ? jb.bytes : ROOM;

	memcpy(input, jb.mem, size);
	for (uint32_t n = below(8); n--;) {
		unsigned int r = below(GM_REGION_COUNT + 1);
		const struct gm_region *region = &jb.h->regions[r % GM_REGION_COUNT];
		uint64_t used = r == GM_REGION_COUNT ? sizeof(struct gm_header) : region->used;
		uint64_t at = r == GM_REGION_COUNT ? 0 : region->offset, word;

		at += used > 8 ? below(used - 7) & ~(uint64_t)(below(2) ? 7 : 0) : 0;
		word = below(3) ? below(64) : (uint64_t)below(UINT32_MAX) << below(33);
		word = below(4) ? word : INT64_MAX - below(2);
		if (at + 8 <= size)
			memcpy(input + at, &word, 1 + below(8));
	}
	return below(10) ? size : below(size);
}

/* A history as a program makes one: every block is freed once, after its request. */
static size_t good_trace(char *to, size_t room)
{
	size_t length = (size_t)snprintf(to, room, "# conf=max_split_size_mb:64\n# memory_limit_bytes=0\n");

	for (uint32_t id = 0; id < 60; id++) {
		uint32_t bytes = 512u << below(16);

		length += (size_t)snprintf(to + length, room - length, "a %u %u %u %x\n", id, bytes, below(3), 0x1000000 * (id + 1));
		if (id >= 20)
			length += (size_t)snprintf(to + length, room - length, "r %u\nf %u\n%s", id - 20, id - 20,
						   below(9) ? "" : "e\n");
	}
	return length;
}

static size_t changed_trace(void)
{
	static const char *const lines[] = {
		"a 7 18446744073709551615 0 1\n", "a 18446744073709551615 512 0 1\n", "a 900 0 0 0\n", "f 7\n", "f 7\n", "r 3\n", "e\n",
		"a 901 1099511627776 18446744073709551615 ffffffffffffffff\n", "# memory_limit_bytes=1\n", "# conf=large_segment_size_mb:21\n",
		"# conf=max_split_size_mb:99999999999999999999\n", "# conf=roundup_power2_divisions:[256:1,>:9]\n", "# segment_alloc 1 2 3\n",
		"# oom 1 2 3\n", "# segment_free 0 0 0\n", "a 1 -5 0 1\n", "a\n", "x\n", "a 5 5 5 zz\n", "\n",
	};
	size_t size = good_trace((char *)input, ROOM);

	for (uint32_t n = below(6); n--;) {		/* a line more, between two others */
		const char *line = lines[below(sizeof(lines) / sizeof(lines[0]))];
		size_t at = below(size);

		while (at && input[at - 1] != '\n')
			at--;
		memmove(input + at + strlen(line), input + at, size - at);
		memcpy(input + at, line, strlen(line));
		size += strlen(line);
	}
	return below(4) ? size : change_bytes(input, size);
}

static size_t foreign(void)
{
	static const char *const texts[] = {
		"", "{}", "[]", "null", "5", "\"x\"", "{\"a\":[1]}", "{\"segments\":[]}", "{\"device_traces\":[[],5,[null]]}",
		"{\"format\":\"gpumem-snapshot\",\"version\":1}", "{\"format\":\"gpumem-snapshot\",\"version\":1e0,\"devices\":[{\"device\":7.0}]}",
		"{\"format\":\"gpumem-snapshot\",\"version\":99999999999999999999}", "leak:main\n#\nleak:^*$\nleak:[a\\\nleak:\n",
		"{\"format\":\"gpumem-snapshot\",\"version\":2}",
		"\x80\x02}.", "\x80\x04]\x94.", ("\x80\x02" "cposix\nsystem\n."), "PK\3\4", "time,addr\n1,2\n",
		"{\"segments\":[{\"blocks\":[{}]}],\"device_traces\":[[{}]]}",
	};
	const char *text = texts[below(sizeof(texts) / sizeof(texts[0]))];
	int fd;
	ssize_t n;

	switch (below(4)) {
	case 0:
		for (size_t i = 0, size = below(5000); i < size; i++)
			input[i] = (uint8_t)below(256);
		return below(5000);
	case 1:
		fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? 0 : pread(fd, input, 1 + below(20000), below(20000));
		close(fd);
		return n > 0 ? (size_t)n : 0;
	default:
		memcpy(input, text, strlen(text));
		return strlen(text);
	}
}

/* What something was found with: the first runs. */
static const struct { const char *command, *input; } kept[] = {
	{ "v replay --verify S F",	/* rounds to 2^60 bytes */
	  "# segment_alloc 1152921504606846976 0 7f0000000000\na 1 1152921504606846876 0 7f0000000000\nr 1\nf 1\n" },
	{ "v check --no-leaks -s F G", "leak:\n" },
};
#define KEPT (sizeof(kept) / sizeof(kept[0]))

static void lay(const void *content, size_t size)
{
	if (ftruncate(input_fd, 0) || pwrite(input_fd, content, size, 0) != (ssize_t)size)
		abort();
}

/* gpumem top takes none but a living process's: one out of sight, whose word that says so is believed. */
static void lay_living(size_t size)
{
	struct gm_header *header = (struct gm_header *)(void *)input;
	uint32_t owner = 1;

	if (size >= sizeof(*header)) {
		header->has_helper = 1;
		header->boot_id[0] = '\0';
		header->pid_namespace = 0;
		memcpy(&header->alive, &owner, sizeof(owner));
	}
	lay(input, size);
}

/* On a journal that changes under it. */
static void run_top(void)
{
	struct gm_top_process *list[1] = { gm_top_open(1, input_fd, true) };
	struct gm_top top = { .list = list, .count = 1 };

	for (int i = 0; i < 3; i++) {
		lay_living(changed_journal());
		sampled += (unsigned long)gm_top_refresh(&top);
		if (ftruncate(out_fd, 0))
			abort();
		lseek(STDOUT_FILENO, 0, SEEK_SET);
		gm_top_text(stdout, &top, 20);
		gm_top_json(stdout, &top);
		fflush(stdout);
		list[0]->state = GM_TOP_RUNNING;
	}
	gm_top_close(list[0]);
	gm_top_rows_free(&top.modules);
	gm_top_rows_free(&top.sites);
}

static void one_run(uint64_t number)
{
	uint32_t kind;
	size_t which, size;

	*run_number = number;
	state = (seed + number) * UINT64_C(0x9e3779b97f4a7c15) | 1;
	for (int i = 0; i < 4; i++)
		below(2);
	kind = below(22);
	if (number < KEPT) {
		lay(kept[number].input, strlen(kept[number].input));
		run_command(kept[number].command);
		return;
	}
	do
		which = below(50) ? below(SYMBOLIZE) : SYMBOLIZE;
	while (!known(commands[which]));
	size = kind < 12 ? changed_json(false) : kind < 16 ? changed_json(true) :
	       kind < 19 ? changed_journal() : kind < 21 ? changed_trace() : foreign();
	lay(input, size);
	run_command(commands[which]);
	if (kind >= 16 && kind < 19)
		run_top();
}

static void load_corpus(void)
{
	json_t *segments;

	ours = json_load_file(good_path, 0, NULL);
	snprintf(input_path, sizeof(input_path), "%s", good_path);
	run_command("j convert --to pytorch-json F");
	lseek(out_fd, 0, SEEK_SET);
	torch = json_loadfd(out_fd, 0, NULL);
	snprintf(input_path, sizeof(input_path), "/proc/self/fd/%d", input_fd);
	segments = json_object_get(torch, "segments");
	if (!ours || !json_array_size(segments)) {
		say("not ok 1 - fuzz_verbs # %s cannot be read\n", good_path);
		exit(1);
	}
}

static void lay_trace(void)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);

	state = 1;
	if (fd < 0 || write(fd, input, good_trace((char *)input, ROOM)) < 0)
		abort();
	snprintf(trace_path, sizeof(trace_path), "/proc/self/fd/%d", fd);
}

#define NOT_GOOD 42			/* an exit that no sanitizer has */

static int fuzz(uint64_t runs)
{
	uint64_t i = 0;

	for (; i < runs; i++)
		one_run(i);
	say("# %llu runs: %ld read, %ld of them found wanting, %ld refused; the slowest took %.2f s (FUZZ_ONE=%llu)\n",
	    (unsigned long long)i, done_well + found_wanting, found_wanting, refused, slowest,
	    (unsigned long long)slowest_run);
	/* both must come up often, or the inputs do not reach what they are to test */
	if (done_well < (long)i / 5 || refused < (long)i / 50 || sampled < i / 50) {
		say("not ok 1 - fuzz_verbs # the inputs are too much alike\n");
		return NOT_GOOD;
	}
	say("ok 1 - fuzz_verbs\n");
	return 0;
}

/* The runs are a child's: what it said last, and which run it was in, can be told after any death. */
int main(int argc, char **argv)
{
	const char *one = getenv("FUZZ_ONE");
	int status;
	pid_t child;

	seed = test_seed();
	run_number = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	begin();
	input = calloc(1, ROOM);
	lay_trace();
	load_corpus();
	build_journal();
	if (one) {
		one_run(strtoull(one, NULL, 0));
		show("stderr", err_fd);
		show("stdout", out_fd);
		return 0;
	}
	child = fork();
	if (!child)
		_exit(fuzz(argc > 1 ? strtoull(argv[1], NULL, 0) : 1000));
	if (child < 0 || waitpid(child, &status, 0) != child)
		abort();
	if (WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == NOT_GOOD))
		return WEXITSTATUS(status) != 0;
	show("stderr", err_fd);
	say("not ok 1 - fuzz_verbs # %s %d in run SEED=%llu FUZZ_ONE=%llu\n",
	    WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
	    (unsigned long long)seed, (unsigned long long)*run_number);
	return 1;
}

#endif
