/*
 * fuzz_journal.c - journals of any content: whatever reads them answers in bounds and in finite
 * time, and the snapshot is JSON.
 *
 * Input: changes to a small journal that has something of everything, 12 bytes each: the region (a
 * byte; 12 is the header, 13 the last one), an offset in it (3 bytes), the word to put there. A first byte of 0xff
 * cuts the file where the next three say; an input that begins as a journal does is one.
 * usage: fuzz_journal [runs], seeded by $SEED; replays test/fuzz/corpus/journal first.
 */
#include "test/unit/journal/journal_builder.h"
#include "test/seed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <time.h>

#include "recorder/read/copy.h"
#include "recorder/snapshot/snapshot.h"
#include "test/unit/journal/aux_check.h"

#define RECORD 12
#define OP(slot, n) ((uint64_t)(slot) << 40 | (n))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct jb jb;
static int journal = -1;		/* @jb as a file */
static long answers[3];			/* refused, read and sound, read with damage */

static void insist(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fuzz_journal: %s\n", what);
	abort();
}

static void build(void)
{
	static const uint32_t frames[] = { 1, 2, 1 };
	uint32_t ids[24], stack;
	struct gm_tcache_record *tcache;

	jb_new(&jb, (struct jb_plan){ 64, 64, 8, 4096 });
	for (uint32_t slot = 1; slot < 5; slot++)
		jb_thread(&jb, slot, 100 * slot);
	jb_device(&jb, 0, "A device", 1ull << 36);
	jb_device(&jb, 1, "Another", 1ull << 36);
	jb_module(&jb, "/usr/lib/libcublas.so.12", 0x10000);
	jb_frame(&jb, 1, 0x44, jb_string(&jb, "cublasCreate"));
	jb_frame(&jb, 1, 0x88, jb_string(&jb, "main"));
	stack = jb_stack(&jb, frames, 3);
	jb_setting(&jb, "history", "1048576", "default");
	jb_setting(&jb, "roundup_power2_divisions", "[256:1,512:2,>:8]", "GPUMEM_CONF");
	for (uint32_t i = 0; i < 24; i++) {
		struct jb_what what = {
			.address = 0x7000000 + (i % 20) * 0x200000ull, .size = 0x100000 + i,
			.op = OP(1 + i % 4, i + 1), .tsc = 10 * i + 10, .module = 1, .stack = stack,
			.kind = (uint8_t)(i % GM_KIND_COUNT), .domain = (uint8_t)(i & 1),
		};

		if (what.kind == GM_KIND_HOST)
			what.domain = GM_DOMAIN_HOST;
		ids[i] = jb_alloc(&jb, 1 + i % 4, what);
		if (i < 4)	/* its address is handed out again 20 rounds later */
			jb.blocks[ids[i]].state = GM_BLOCK_FREEING;
		if (i % 7 == 5)
			jb_free(&jb, 1 + i % 4, ids[i], OP(1 + i % 4, 100 + i), what.tsc + 5);
	}
	jb_event(&jb, 1, OP(1, 200), GM_ACTION_ANNOTATE, 0, 600, 0, 0)->stack = jb_string(&jb, "epoch");
	jb.threads[2].flight_op = OP(2, 300);
	jb.threads[2].flight_action = GM_ACTION_FREE_REQUESTED;
	jb.threads[2].flight_address = jb.blocks[ids[1]].address;
	jb.threads[2].flight_domain = 1;
	jb.failures[0] = (struct gm_failure){ .number = 1, .result = 2, .entry = "cuMemAlloc_v2" };
	jb_domain(&jb, 1)->undo_op = OP(3, 301);
	jb_undo(&jb, 1, &jb.segments[8].used);
	jb_undo(&jb, 1, &jb.blocks[8].state);
	tcache = jb_tcache(&jb, 4, 0);
	tcache->tallies[2] = (struct gm_tally){ .takes = 7, .puts = 7, .taken_bytes = 700,
					       .put_bytes = 700, .size = 512, .module = 1 };
	tcache->undo_op = OP(4, 302);
	jb_tcache_undo(&jb, tcache, &jb.blocks[9].state);
	jb_tcache_undo(&jb, tcache, &tcache->tallies[2].puts);
	jb_tcache_undo(&jb, tcache, &tcache->tallies[2].put_bytes);
	jb.blocks[9].state = GM_BLOCK_CACHED;
	tcache->tallies[2].puts++;
	tcache->tallies[2].put_bytes += 100;
	jb_pool(&jb, GM_DOMAIN_POOLS, jb_string(&jb, "mine"));
	for (uint64_t i = 0; i < 5; i++)
		jb_line(&jb, (struct jb_what){ .address = 0x1000000 + i * 4096, .size = 4096, .op = OP(1, 400 + i),
					       .tsc = 500 + i, .domain = GM_DOMAIN_POOLS, .module = 1 });
	jb.threads[3].pool_op = OP(3, 500);
	jb.threads[3].pool_address = 0x1001000 | GM_LIVE_ENDING;
	jb.h->clock.stamp[1] = jb.h->clock.monotonic_ns[1] = 1000;
	jb.h->clock.wall_ns[1] = 1700000000000000000;
	journal = jb_file(&jb);
}

static void count(void *arg, const char *what, uint64_t where)
{
	(void)what;
	(void)where;
	++*(long *)arg;
}

static void read_back(int fd)
{
	off_t length = lseek(fd, 0, SEEK_END);
	char *text = malloc((size_t)length + 1);
	json_error_t error;
	json_t *root;

	insist(text && pread(fd, text, (size_t)length, 0) == length, "cannot read the JSON back");
	root = json_loadb(text, (size_t)length, JSON_ALLOW_NUL, &error);
	if (!root)
		fprintf(stderr, "%s at byte %d: %.60s\n", error.text, error.position,
			text + (error.position > 30 ? error.position - 30 : 0));
	insist(root != NULL, "not JSON");
	json_decref(root);
	free(text);
}

/* Everything that reads a journal, on the file @fd. */
static void read_journal(int fd)
{
	static const struct gm_snapshot_request request = { .reason = "fuzz", .failure = 1 };
	struct gm_copy copy;
	long violations = 0;
	int json, r = gm_copy_from_file(&copy, fd);

	gm_copy_alive(fd);
	if (r) {
		insist(copy.error[0] && !copy.base, "a refusal without a reason");
		answers[0]++;
		return;
	}
	r = gm_copy_resolve(&copy, UINT64_MAX);
	insist(!r, "settle failed");
	insist(gm_copy_check(&copy, count, &violations) == violations, "violations miscounted");
	answers[violations ? 2 : 1]++;
	json = memfd_create("json", MFD_CLOEXEC);
	insist(json >= 0 && !gm_snapshot_emit(&copy, &request, json), "emit failed");
	read_back(json);
	close(json);
	gm_copy_free(&copy);
}

#define HEADER 12u		/* its number in the corpus, which is older than the last two regions */

static uint64_t place_of(const uint8_t *record)
{
	const struct gm_region *regions = jb.h->regions;
	unsigned int r = record[0] % (GM_REGION_COUNT + 1);
	uint64_t offset = record[1] | (uint64_t)record[2] << 8 | (uint64_t)record[3] << 16;

	if (r == HEADER)
		return offset % (sizeof(struct gm_header) - 8);
	r -= r > HEADER;
	return regions[r].offset + offset % (regions[r].used > 16 ? regions[r].used - 8 : 8);
}

static void put(int fd, uint64_t at, const void *word)
{
	insist(pwrite(fd, word, 8, (off_t)at) == 8, "pwrite");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t magic = GM_MAGIC;
	off_t whole;

	if (journal < 0)
		build();
	if (size >= 8 && !memcmp(data, &magic, 8)) {
		int fd = memfd_create("raw", MFD_CLOEXEC);

		insist(fd >= 0 && write(fd, data, size) == (ssize_t)size, "write");
		read_journal(fd);
		close(fd);
		return 0;
	}
	whole = (off_t)jb.bytes;
	for (size_t at = 0; at + RECORD <= size; at += RECORD) {
		if (data[at] == 0xff)
			whole = (off_t)(data[at + 1] | data[at + 2] << 8 | data[at + 3] << 16);
		else
			put(journal, place_of(data + at), data + at + 4);
	}
	if (whole < (off_t)jb.bytes)
		insist(!ftruncate(journal, whole), "ftruncate");
	read_journal(journal);
	if (whole < (off_t)jb.bytes) {
		close(journal);
		journal = jb_file(&jb);
		return 0;
	}
	for (size_t at = 0; at + RECORD <= size; at += RECORD)
		put(journal, place_of(data + at), jb.mem + place_of(data + at));
	return 0;
}

#ifndef GM_LIBFUZZER

static uint64_t state;

static uint64_t random_word(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * UINT64_C(0x2545f4914f6cdd1d);
}

/* One to four changes: of a bit, by one, to a number that is a limit of something, to another
 * word of the journal. */
static size_t make_input(uint8_t *input)
{
	static const uint64_t limits[] = {
		0, 1, 7, 8, 63, 64, 65, 254, 255, 4095, 4096, UINT16_MAX, UINT32_MAX, INT64_MAX,
		UINT64_MAX, UINT64_MAX - 4095, UINT64_C(1) << 32, UINT64_C(1) << 63,
	};
	unsigned int changes = 1 + (unsigned int)(random_word() % 4);

	for (unsigned int i = 0; i < changes; i++) {
		uint8_t *record = input + i * RECORD;
		uint64_t word = random_word();

		memcpy(record, &word, 4);
		record[0] = (uint8_t)(word >> 8 & 1 ? word % (GM_REGION_COUNT + 1) : word % 5);	/* mostly tables */
		if (word % 31 == 0) {				/* the layout in the header */
			record[0] = HEADER;
			record[1] = (uint8_t)(word >> 16);
			record[2] = (uint8_t)(word >> 24 & 3);
			record[3] = 0;
		}
		if (word % 97 == 0)
			record[0] = 0xff;
		memcpy(&word, jb.mem + place_of(record), 8);
		switch (random_word() % 5) {
		case 0:
			word ^= UINT64_C(1) << random_word() % 64;
			break;
		case 1:
			word += random_word() % 5 - 2;
			break;
		case 2:
			word = limits[random_word() % (sizeof(limits) / sizeof(limits[0]))];
			break;
		case 3:
			memcpy(&word, jb.mem + random_word() % (jb.bytes - 8), 8);
			break;
		default:
			word = (word & ~UINT64_C(0xffffffff)) | random_word() % 80;
			break;
		}
		memcpy(record + 4, &word, 8);
	}
	return changes * RECORD;
}

/* Every file of the corpus: returns how many. */
static unsigned int replay(const char *directory)
{
	static uint8_t input[1 << 16];
	DIR *dir = opendir(directory);
	unsigned int files = 0;

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		int fd = openat(dirfd(dir), entry->d_name, O_RDONLY);
		ssize_t n = entry->d_name[0] == '.' ? -1 : read(fd, input, sizeof(input));

		if (n >= 0) {
			LLVMFuzzerTestOneInput(input, (size_t)n);
			files++;
		}
		close(fd);
	}
	if (dir)
		closedir(dir);
	return files;
}

int main(int argc, char **argv)
{
	long runs = argc > 1 ? atol(argv[1]) : 2000;
	uint8_t input[4 * RECORD];
	unsigned int files;

	state = test_seed();
	LLVMFuzzerTestOneInput(NULL, 0);
	files = replay("test/fuzz/corpus/journal");
	for (long i = 0; i < runs; i++) {
		if (i % 100 == 0)
			alarm(60);		/* an endless loop is a failure */
		LLVMFuzzerTestOneInput(input, make_input(input));
	}
	printf("# %u files replayed; %ld refused, %ld sound, %ld damaged\n", files, answers[0],
	       answers[1], answers[2]);
	/* all three must come up, or the inputs do not reach what they are to test */
	if (!files || answers[0] < runs / 400 || answers[1] < runs / 50 || answers[2] < runs / 5) {
		printf("not ok 1 - fuzz_journal # the inputs are too much alike\n");
		return 1;
	}
	printf("ok 1 - fuzz_journal\n");
	return 0;
}

#endif
