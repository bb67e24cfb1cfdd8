/* The JSON writer: every value, text of any bytes, errors that stick. Its output is parsed back. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/snapshot/jsonw.h"
#include "test/suite.h"

static struct gm_jsonw *w;
static int fd;

static void setup(void)
{
	w = malloc(sizeof(*w));
	fd = memfd_create("json", 0);
	ck_assert(w && fd >= 0);
	gm_jsonw_init(w, fd, UINT64_MAX);
}

static void teardown(void)
{
	free(w);
	close(fd);
}

static char *text_of(size_t *ret_length)
{
	off_t length = lseek(fd, 0, SEEK_END);
	char *text = malloc((size_t)length + 1);

	ck_assert_int_eq(pread(fd, text, (size_t)length, 0), length);
	text[length] = '\0';
	if (ret_length)
		*ret_length = (size_t)length;
	return text;
}

static json_t *parsed(void)
{
	size_t length;
	char *text = text_of(&length);
	json_error_t error;
	json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
				  JSON_DECODE_ANY, &error);

	ck_assert_msg(root != NULL, "%s at %d: %.200s", error.text, error.position, text);
	free(text);
	return root;
}

START_TEST(every_value)
{
	json_t *root, *list;

	gm_jsonw_object(w);
	gm_jsonw_key_u64(w, "max", INT64_MAX);
	gm_jsonw_key_i64(w, "min", INT64_MIN);
	gm_jsonw_key_bool(w, "yes", true);
	gm_jsonw_key_bool(w, "no", false);
	gm_jsonw_key_text(w, "none", NULL);
	gm_jsonw_key_text(w, "text", "a\"b\\c/\n\t\r\x01\x1f\x7f");
	gm_jsonw_key(w, "list");
	gm_jsonw_array(w);
	for (int i = 0; i < 3; i++) {
		gm_jsonw_object(w);
		gm_jsonw_end(w);
		gm_jsonw_array(w);
		gm_jsonw_end(w);
		gm_jsonw_null(w);
		gm_jsonw_raw(w, "0.5", 3);
	}
	gm_jsonw_end(w);
	gm_jsonw_end(w);
	ck_assert_int_eq(gm_jsonw_finish(w), 0);
	root = parsed();
	ck_assert(json_integer_value(json_object_get(root, "max")) == INT64_MAX);
	ck_assert(json_integer_value(json_object_get(root, "min")) == INT64_MIN);
	ck_assert(json_is_true(json_object_get(root, "yes")));
	ck_assert(json_is_false(json_object_get(root, "no")));
	ck_assert(json_is_null(json_object_get(root, "none")));
	ck_assert_str_eq(json_string_value(json_object_get(root, "text")),
			 "a\"b\\c/\n\t\r\x01\x1f\x7f");
	list = json_object_get(root, "list");
	ck_assert_uint_eq(json_array_size(list), 12);
	ck_assert(json_real_value(json_array_get(list, 11)) == 0.5);
	ck_assert_uint_eq(json_object_size(root), 7);
	json_decref(root);
}
END_TEST

START_TEST(numbers_are_those_of_printf)
{
	char wanted[200000], *got, *at = wanted;

	gm_jsonw_array(w);
	*at++ = '[';
	for (int bit = 0; bit < 64; bit++) {
		for (int by = -1; by <= 1; by++) {
			uint64_t value = (UINT64_C(1) << bit) + (uint64_t)by;

			gm_jsonw_u64(w, value);
			gm_jsonw_i64(w, (int64_t)value);
			at += sprintf(at, "%lld,%lld,", (long long)value, (long long)value);
		}
	}
	for (uint64_t value = 1, i = 0; i < 20; i++, value *= 10) {
		gm_jsonw_u64(w, value);
		gm_jsonw_u64(w, value - 1);
		at += sprintf(at, "%lld,%lld,", (long long)value, (long long)(value - 1));
	}
	gm_jsonw_end(w);
	at[-1] = ']';
	at[0] = '\0';
	ck_assert_int_eq(gm_jsonw_finish(w), 0);
	got = text_of(NULL);
	ck_assert_str_eq(got, wanted);
	free(got);
}
END_TEST

/* What Unicode recommends: one U+FFFD for each longest beginning of a sequence. */
static const struct { const char *bytes, *wanted; } utf8[] = {
	{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
	{ "a\xff" "b", "a\xef\xbf\xbd" "b" },
	{ "\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd" },			/* overlong NUL */
	{ "\xe2\x82", "\xef\xbf\xbd" },					/* cut off */
	{ "\xe2\x82" "x", "\xef\xbf\xbdx" },
	{ "\xf0\x9f\x98", "\xef\xbf\xbd" },
	{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },	/* a surrogate */
	{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf" },
	{ "\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xf5\x80", "\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\x80", "\xef\xbf\xbd" },
};

START_TEST(text_is_utf8)
{
	json_t *root;

	gm_jsonw_text(w, utf8[_i].bytes);
	ck_assert_int_eq(gm_jsonw_finish(w), 0);
	root = parsed();
	ck_assert_str_eq(json_string_value(root), utf8[_i].wanted);
	json_decref(root);
}
END_TEST

START_TEST(any_bytes_parse_back)
{
	unsigned int seed = 20251120;
	json_t *root;

	printf("# seed %u\n", seed);
	gm_jsonw_array(w);
	for (int i = 0; i < 3000; i++) {
		char bytes[64];
		size_t length = (size_t)rand_r(&seed) % sizeof(bytes);

		for (size_t k = 0; k < length; k++)
			bytes[k] = (char)(rand_r(&seed) >> 7);
		gm_jsonw_bytes(w, bytes, length);
	}
	gm_jsonw_end(w);
	ck_assert_int_eq(gm_jsonw_finish(w), 0);
	root = parsed();
	ck_assert_uint_eq(json_array_size(root), 3000);
	json_decref(root);
}
END_TEST

START_TEST(longer_than_the_buffer)
{
	static char text[3 * GM_JSONW_BUFFER];
	json_t *root;

	memset(text, 'x', sizeof(text));
	text[GM_JSONW_BUFFER] = '"';
	gm_jsonw_array(w);
	for (int i = 0; i < 40000; i++)
		gm_jsonw_u64(w, (uint64_t)i);
	gm_jsonw_bytes(w, text, sizeof(text));
	gm_jsonw_end(w);
	ck_assert_int_eq(gm_jsonw_finish(w), 0);
	root = parsed();
	ck_assert_uint_eq(json_array_size(root), 40001);
	ck_assert_int_eq(json_integer_value(json_array_get(root, 39999)), 39999);
	ck_assert_uint_eq(json_string_length(json_array_get(root, 40000)), sizeof(text));
	ck_assert(!memcmp(json_string_value(json_array_get(root, 40000)), text, sizeof(text)));
	json_decref(root);
}
END_TEST

/* Each makes a text that would not be JSON. */
static void end_of_nothing(void) { gm_jsonw_end(w); }
static void not_ended(void) { gm_jsonw_array(w); }
static void too_deep(void) { for (int i = 0; i < 40; i++) gm_jsonw_array(w); }
static void raw_too_long(void)
{
	char digits[80];

	memset(digits, '1', sizeof(digits));
	gm_jsonw_raw(w, digits, sizeof(digits));
}

static void (*const wrong[])(void) = {
	end_of_nothing, not_ended, too_deep, raw_too_long,
};

START_TEST(misuse_is_an_error)
{
	wrong[_i]();
	ck_assert_int_eq(gm_jsonw_finish(w), -EINVAL);
}
END_TEST

static void write_much(void)
{
	gm_jsonw_array(w);
	for (int i = 0; i < 100000; i++)
		gm_jsonw_u64(w, 1234567);
	gm_jsonw_end(w);
}

START_TEST(a_full_disk_sticks)
{
	int full = open("/dev/full", O_WRONLY);

	ck_assert_int_ge(full, 0);
	gm_jsonw_init(w, full, UINT64_MAX);
	write_much();
	ck_assert_int_eq(gm_jsonw_finish(w), -ENOSPC);
	ck_assert_int_eq(gm_jsonw_finish(w), -ENOSPC);
	ck_assert_uint_eq(w->flushed, 0);
	close(full);
}
END_TEST

START_TEST(a_bad_descriptor_sticks)
{
	gm_jsonw_init(w, -1, UINT64_MAX);
	write_much();
	ck_assert_int_eq(gm_jsonw_finish(w), -EBADF);
}
END_TEST

START_TEST(the_limit_holds)
{
	gm_jsonw_init(w, fd, 100000);
	write_much();
	ck_assert_int_eq(gm_jsonw_finish(w), -EFBIG);
	ck_assert_int_le(lseek(fd, 0, SEEK_END), 100000);
}
END_TEST

static _Atomic(unsigned int) interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted++;
}

struct reader { int fd; size_t got; pthread_t writer; };

/* The writer waits for room in the pipe, or is about to: each read makes room, each signal interrupts. */
static void *read_slowly(void *arg)
{
	struct reader *reader = arg;
	char buffer[997];
	ssize_t n;

	while ((n = read(reader->fd, buffer, sizeof(buffer))) > 0) {
		reader->got += (size_t)n;
		usleep(200);
		pthread_kill(reader->writer, SIGALRM);
	}
	return NULL;
}

/* A pipe takes less than is offered, and signals interrupt: nothing is lost or doubled. */
START_TEST(short_and_interrupted_writes)
{
	struct sigaction action = { .sa_handler = on_signal };	/* no SA_RESTART */
	struct reader reader = { .writer = pthread_self() };
	pthread_t thread;
	int pipes[2];

	sigaction(SIGALRM, &action, NULL);
	ck_assert_int_eq(pipe(pipes), 0);
	reader.fd = pipes[0];
	ck_assert_int_eq(pthread_create(&thread, NULL, read_slowly, &reader), 0);
	gm_jsonw_init(w, pipes[1], UINT64_MAX);
	write_much();
	ck_assert_int_eq(gm_jsonw_finish(w), 0);
	close(pipes[1]);
	pthread_join(thread, NULL);
	close(pipes[0]);
	ck_assert_uint_gt(interrupted, 100);
	ck_assert_uint_eq(reader.got, 100000 * 8 + 1);
	ck_assert_uint_eq(w->flushed, 100000 * 8 + 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("jsonw");
	TCase *tcase = tcase_create("jsonw");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, every_value);
	tcase_add_test(tcase, numbers_are_those_of_printf);
	tcase_add_loop_test(tcase, text_is_utf8, 0, (int)(sizeof(utf8) / sizeof(utf8[0])));
	tcase_add_test(tcase, any_bytes_parse_back);
	tcase_add_test(tcase, longer_than_the_buffer);
	tcase_add_loop_test(tcase, misuse_is_an_error, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_test(tcase, a_full_disk_sticks);
	tcase_add_test(tcase, a_bad_descriptor_sticks);
	tcase_add_test(tcase, the_limit_holds);
	tcase_add_test(tcase, short_and_interrupted_writes);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
