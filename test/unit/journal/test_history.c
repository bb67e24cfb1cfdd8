/*
 * Random histories through the real recorder, against a model: the tables, the counters, the trace
 * and the JSON of every copy must say what the model says, whether the copy is taken of the living
 * journal or of its file.
 */
#define _GNU_SOURCE
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/snapshot/snapshot.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/cache/aux_replay.h"

/* libcheck writes a line to a file for each of its assertions: not for every event. */
#define MUST(condition) do { \
	if (!(condition)) \
		ck_abort_msg("%s", #condition); \
} while (0)

struct model {
	struct live { uint64_t size, requested, stream; uint32_t block; uint16_t module;
		      uint8_t domain, kind; } live[SLOTS];
	struct done { const char *action; uint64_t address, size; uint8_t domain, kind;
		      uint16_t module; } done[40000];
	size_t count;
	int64_t current[GM_DOMAINS], peak[GM_DOMAINS], total[GM_DOMAINS];
	int64_t by_kind[GM_DOMAINS][GM_KIND_COUNT], by_module[GM_DOMAINS][AUX_MODULES + 1];
};

static struct model model;

static void did(const char *action, unsigned int slot, uint64_t size)
{
	const struct live *live = &model.live[slot];

	model.done[model.count++] = (struct done){ action, address_of(slot), size, live->domain,
						   live->kind, live->module };
}

static void count(const struct live *live, int sign)
{
	int64_t size = sign * (int64_t)live->size;

	model.by_kind[live->domain][live->kind] += size;
	if (live->kind == GM_KIND_IPC)
		return;
	model.by_module[live->domain][live->module] += size;
	model.current[live->domain] += size;
	if (sign > 0)
		model.total[live->domain] += size;
	if (model.current[live->domain] > model.peak[live->domain])
		model.peak[live->domain] = model.current[live->domain];
}

static void model_alloc(unsigned int slot, unsigned int *seed)
{
	static const uint8_t domains[] = { 0, 1, 3 };
	struct live *live = &model.live[slot];
	struct gm_alloc alloc;
	uint64_t op;

	*live = (struct live){
		.requested = 1 + (uint64_t)rand_r(seed) % (SPAN - 512),
		.stream = (uint64_t)rand_r(seed) % 3, .domain = domains[rand_r(seed) % 3],
		.module = (uint16_t)(rand_r(seed) % (AUX_MODULES + 1)),
		.kind = (uint8_t)(rand_r(seed) % GM_KIND_COUNT),
	};
	live->size = (live->requested + 511) & ~UINT64_C(511);
	if (live->kind == GM_KIND_HOST)
		live->domain = GM_DOMAIN_HOST;
	alloc = (struct gm_alloc){
		.address = address_of(slot), .size = live->size, .requested = live->requested,
		.stream = live->stream, .module = live->module, .domain = live->domain,
		.kind = live->kind,
	};
	op = gm_op_begin(GM_ACTION_ALLOC, live->kind, live->domain, 0, live->requested);
	MUST(gm_record_alloc(op, &alloc, &live->block) == 0);
	gm_op_end(op);
	did("segment_alloc", slot, live->size);
	did("alloc", slot, live->requested);
	count(live, 1);
}

static void model_free(unsigned int slot)
{
	struct live *live = &model.live[slot];
	uint64_t op = gm_op_begin(GM_ACTION_FREE_REQUESTED, live->kind, live->domain,
				  address_of(slot), live->size);

	gm_record_freeing(live->block);
	MUST(gm_record_free(op, live->block, gm_stamp_before(), 0) == 0);
	gm_op_end(op);
	did("free_requested", slot, live->requested);
	did("free_completed", slot, live->requested);
	did("segment_free", slot, live->size);
	count(live, -1);
	live->size = 0;
}

static void model_steps(unsigned int steps, unsigned int *seed)
{
	while (steps--) {
		unsigned int slot = (unsigned int)rand_r(seed) % SLOTS;

		if (model.live[slot].size)
			model_free(slot);
		else
			model_alloc(slot, seed);
	}
}

static json_int_t number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	MUST(json_is_integer(value));
	return json_integer_value(value);
}

static const char *word(const json_t *object, const char *key)
{
	MUST(json_is_string(json_object_get(object, key)));
	return json_string_value(json_object_get(object, key));
}

static const char *const kinds[] = {
	"device", "managed", "array", "host", "vmm", "pool", "ipc", "graph", "external"
};

static void compare_segments(const json_t *segments, bool host, unsigned int *ret_found)
{
	const json_t *segment;
	json_int_t last = 0, last_device = -1;
	size_t i;

	json_array_foreach(segments, i, segment) {
		const json_t *block = json_array_get(json_object_get(segment, "blocks"), 0);
		unsigned int slot = slot_of((uint64_t)number(segment, "address"));
		json_int_t device = host ? GM_DOMAIN_HOST : number(segment, "device");
		const struct live *live;

		MUST(slot < SLOTS);
		live = &model.live[slot];
		MUST((uint64_t)number(segment, "total_size") == live->size);
		MUST((uint64_t)number(segment, "stream") == live->stream);
		MUST((uint64_t)number(segment, "module") == live->module);
		MUST(!strcmp(word(segment, "kind"), kinds[live->kind]));
		MUST(device == live->domain);
		MUST((uint64_t)number(block, "requested_size") == live->requested);
		MUST(!strcmp(word(block, "state"), "active_allocated"));
		MUST(device > last_device || number(segment, "address") > last);
		last = number(segment, "address");
		last_device = device;
		++*ret_found;
	}
}

static void compare_trace(const json_t *trace, uint8_t domain)
{
	size_t at = 0;

	for (size_t i = 0; i < model.count; i++) {
		const struct done *done = &model.done[i];
#define COLUMN(name) json_array_get(json_object_get(trace, name), at)
		if (done->domain != domain)
			continue;
		MUST(!strcmp(json_string_value(COLUMN("action")), done->action));
		MUST((uint64_t)json_integer_value(COLUMN("addr")) == done->address);
		MUST((uint64_t)json_integer_value(COLUMN("size")) == done->size);
		MUST(json_integer_value(COLUMN("module")) == done->module);
		MUST(!strcmp(json_string_value(COLUMN("kind")), kinds[done->kind]));
		MUST(json_integer_value(COLUMN("thread")) == gettid());
		MUST(at == 0 || json_integer_value(COLUMN("time_us")) >= json_integer_value(
			  json_array_get(json_object_get(trace, "time_us"), at - 1)));
		at++;
	}
	ck_assert_uint_eq(json_array_size(json_object_get(trace, "action")), at);
	ck_assert_int_eq(number(trace, "dropped"), 0);
}

static void compare_holders(const json_t *device, uint8_t domain)
{
	const json_t *stats = json_object_get(device, "memory_stats"), *row;
	size_t i;

	ck_assert_int_eq(number(stats, "allocated_bytes.all.current"), model.current[domain]);
	ck_assert_int_eq(number(stats, "reserved_bytes.all.peak"), model.peak[domain]);
	ck_assert_int_eq(number(stats, "allocated_bytes.all.allocated"), model.total[domain]);
	ck_assert_int_eq(number(stats, "allocated_bytes.large_pool.current") +
			 number(stats, "allocated_bytes.small_pool.current"),
			 model.current[domain]);
	json_array_foreach(json_object_get(device, "by_module"), i, row)
		ck_assert_int_eq(number(row, "allocated_bytes"),
				 model.by_module[domain][number(row, "module")]);
	json_array_foreach(json_object_get(device, "by_kind"), i, row) {
		int kind = 0;

		while (strcmp(kinds[kind], word(row, "kind")))
			kind++;
		ck_assert_int_eq(number(row, "allocated_bytes"), model.by_kind[domain][kind]);
	}
}

static void compare(struct gm_copy *copy)
{
	static const struct gm_snapshot_request request = { .reason = "test" };
	int fd = memfd_create("json", MFD_CLOEXEC);
	unsigned int found = 0, wanted = 0;
	json_error_t error;
	off_t length;
	json_t *root;
	char *text;

	resolve_sound(copy, UINT64_MAX);
	ck_assert_int_eq(replay(copy), 0);
	ck_assert(copy->consistent);
	ck_assert_uint_eq(copy->flight_count, 0);
	ck_assert_int_eq(gm_snapshot_emit(copy, &request, fd), 0);
	length = lseek(fd, 0, SEEK_END);
	text = malloc((size_t)length);
	ck_assert_int_eq(pread(fd, text, (size_t)length, 0), length);
	root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
	free(text);
	ck_assert_msg(root != NULL, "%s", error.text);
	compare_segments(json_object_get(root, "segments"), false, &found);
	compare_segments(json_object_get(root, "host_segments"), true, &found);
	for (unsigned int slot = 0; slot < SLOTS; slot++)
		wanted += model.live[slot].size != 0;
	ck_assert_uint_eq(found, wanted);
	for (uint8_t d = 0; d < json_array_size(json_object_get(root, "devices")); d++) {
		compare_trace(json_array_get(json_object_get(root, "device_traces"), d), d);
		compare_holders(json_array_get(json_object_get(root, "devices"), d), d);
	}
	compare_trace(json_object_get(root, "host_trace"), GM_DOMAIN_HOST);
	compare_holders(json_object_get(root, "host"), GM_DOMAIN_HOST);
	json_decref(root);
	close(fd);
	gm_copy_free(copy);
}

START_TEST(one_thread_is_the_model)
{
	unsigned int seed = 20251120 + (unsigned int)_i;
	struct gm_copy copy;
	int fd;

	printf("# seed %u\n", seed);
	aux_start(100000);
	for (int round = 0; round < 4; round++) {
		model_steps(1 + (unsigned int)rand_r(&seed) % 2500, &seed);
		ck_assert_int_eq(gm_copy_from_process(&copy), 0);
		compare(&copy);
		fd = open(aux_report.path, O_RDONLY | O_CLOEXEC);
		ck_assert_msg(fd >= 0, "%s", aux_report.path);
		ck_assert_int_eq(gm_copy_from_file(&copy, fd), 0);
		compare(&copy);
		close(fd);
	}
}
END_TEST

/* A history far too small: what is left has one beginning, and the rest is counted. */
START_TEST(a_small_history_has_one_horizon)
{
	unsigned int seed = 20251120 + (unsigned int)_i;
	struct gm_copy copy;
	uint64_t dropped = 0;

	printf("# seed %u\n", seed);
	aux_start(63 * 8);
	model_steps(8000, &seed);
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	resolve_sound(&copy, UINT64_MAX);
	ck_assert_int_eq(replay(&copy), 0);
	ck_assert_uint_gt(copy.event_count, 63 * 3);
	ck_assert_uint_le(copy.event_count, 63 * 8);
	ck_assert_uint_eq(copy.dropped_total, model.count - copy.event_count);
	for (unsigned int d = 0; d < GM_DOMAINS; d++)
		dropped += copy.dropped[d];
	ck_assert_uint_eq(dropped, copy.dropped_total);
	/* The newest ones, in their order. */
	for (size_t i = 0; i < copy.event_count; i++)
		ck_assert_uint_eq(copy.events[i]->address,
				  model.done[model.count - copy.event_count + i].address);
	gm_copy_free(&copy);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("history");
	TCase *tcase = tcase_create("history");

	tcase_add_unchecked_fixture(tcase, aux_directory_make, aux_directory_remove);
	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, one_thread_is_the_model, 0, 8);
	tcase_add_loop_test(tcase, a_small_history_has_one_horizon, 0, 4);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
