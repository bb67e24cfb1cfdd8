/*
 * parsed_snapshot.h - a journal made by hand, and the JSON of its snapshot, parsed back with jansson: what
 * the tests of snapshots begin with. A member is asked for by its path, as "segments/0/blocks".
 */
#ifndef GM_TEST_PARSED_SNAPSHOT_H
#define GM_TEST_PARSED_SNAPSHOT_H

#include "test/unit/journal/journal_builder.h"

#include <jansson.h>

#include "recorder/read/copy.h"
#include "recorder/snapshot/snapshot.h"
#include "test/suite.h"

#define OP(slot, n) ((uint64_t)(slot) << 40 | (n))
#define MIB (UINT64_C(1) << 20)

static struct jb jb;
static struct gm_copy copy;
static json_t *root;
static struct gm_snapshot_request request;

static void setup(void)
{
	struct gm_clock *clock;

	jb_new(&jb, (struct jb_plan){ 256, 256, 64, 65536 });
	clock = &jb.h->clock;		/* stamps are microseconds since 2023-11-14 22:13:20 UTC */
	clock->wall_ns[0] = UINT64_C(1700000000000000000);
	clock->stamp[1] = 1000000;
	clock->monotonic_ns[1] = 1000000000;
	clock->wall_ns[1] = UINT64_C(1700000001000000000);
	jb_thread(&jb, 1, 100);
	jb_thread(&jb, 2, 200);
	memset(&copy, 0, sizeof(copy));
	request = (struct gm_snapshot_request){ .reason = "test", .time_us = 42 };
	root = NULL;
}

static void teardown(void)
{
	json_decref(root);
	gm_copy_free(&copy);
	jb_free_all(&jb);
}

static void settle(uint64_t max_events)
{
	int fd = jb_file(&jb);

	gm_copy_free(&copy);
	ck_assert_int_eq(gm_copy_from_file(&copy, fd), 0);
	ck_assert_int_eq(gm_copy_resolve(&copy, max_events), 0);
	close(fd);
}

static void parse(int fd)
{
	off_t length = lseek(fd, 0, SEEK_END);
	char *text = malloc((size_t)length);
	json_error_t error;

	ck_assert_int_eq(pread(fd, text, (size_t)length, 0), length);
	json_decref(root);
	root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	ck_assert_msg(root != NULL, "%s at byte %d", error.text, error.position);
	free(text);
}

/* "a/b/0/c" from the root; the test fails where there is none. */
static json_t *at(const char *path)
{
	char copied[256], *part, *rest = copied;
	json_t *value = root;

	snprintf(copied, sizeof(copied), "%s", path);
	while ((part = strsep(&rest, "/"))) {
		value = json_is_array(value) ? json_array_get(value, strtoul(part, NULL, 10)) :
			json_object_get(value, part);
		ck_assert_msg(value != NULL, "no %s in %s", part, path);
	}
	return value;
}

static long long num(const char *path)
{
	json_t *value = at(path);

	ck_assert_msg(json_is_integer(value), "%s is no integer", path);
	return json_integer_value(value);
}

#endif
