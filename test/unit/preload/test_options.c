/*
 * test_options.c - options from the environment: every type, its limits, PyTorch's grammar, and
 * what is said about what is wrong.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/options/options.h"
#include "recorder/journal/format.h"
#include "test/suite.h"

static struct gm_options options;
static char said[64][1600];
static int said_count;

static void hear(void *arg, const char *line)
{
	ck_assert_ptr_eq(arg, said);
	ck_assert_int_lt(said_count, 64);
	snprintf(said[said_count++], sizeof(said[0]), "%s", line);
}

/* Read one environment: up to four variables. */
static void read_env(const char *a, const char *b, const char *c, const char *d)
{
	const char *const list[] = { "HOME=/root", a, b, c, d, NULL };
	const char *environment[7];
	int n = 0;

	for (int i = 0; i < 5; i++)
		if (list[i])
			environment[n++] = list[i];
	environment[n] = NULL;
	said_count = 0;
	memset(&options, 0xa5, sizeof(options));	/* nothing is left as it was */
	gm_options_read(&options, (char *const *)environment, hear, said);
}

static void read_one(const char *variable)
{
	read_env(variable, NULL, NULL, NULL);
}

static const char *as_text(enum gm_option_id id)
{
	static char text[2048];

	gm_options_format(&options, id, text, sizeof(text));
	return text;
}

static void check_quiet(void)
{
	ck_assert_msg(said_count == 0, "%s", said[0]);
}

START_TEST(defaults)
{
	read_env(NULL, NULL, NULL, NULL);
	check_quiet();
	ck_assert_uint_eq(options.allocator, GM_ALLOCATOR_CACHING);
	ck_assert_uint_eq(options.history, 1048576);
	ck_assert_uint_eq(options.exit_history, 65536);
	ck_assert_uint_eq(options.snapshot_on,
			  GM_ON_EXIT | GM_ON_SIGNAL | GM_ON_OOM | GM_ON_CRASH);
	ck_assert_uint_eq(options.signal, 10);
	ck_assert_uint_eq(options.oom_snapshots, 4);
	ck_assert_str_eq(options.output, "gpumem.%c.%p.%r.json");
	ck_assert_str_eq(options.journal, "");
	ck_assert(options.follow);
	ck_assert_uint_eq(options.stacks, GM_STACKS_ALL);
	ck_assert_uint_eq(options.context, GM_CONTEXT_ALL);
	ck_assert_uint_eq(options.large_segment_size_mb, 20u << 20);
	ck_assert_uint_eq(options.max_split_size_mb, GM_UNLIMITED);
	ck_assert_uint_eq(options.max_non_split_rounding_mb, 20u << 20);
	ck_assert_double_eq(options.garbage_collection_threshold, 0);
	ck_assert_double_eq(options.per_process_memory_fraction, 1);
	ck_assert(!options.expandable_segments);
	for (unsigned int i = 0; i < GM_OPTION_COUNT; i++)
		ck_assert_str_eq(gm_options_source(&options, i), "default");
}
END_TEST

/* The default of every row is a value of its type, and is told as it was written. */
START_TEST(defaults_round_trip)
{
	static const char *const initial[] = {
#define GM_OPTION(name, type, dflt, min, max, unit, help) dflt,
#include "preload/options/options.def"
	};

	read_env(NULL, NULL, NULL, NULL);
	for (unsigned int i = 0; i < GM_OPTION_COUNT; i++)
		ck_assert_str_eq(as_text(i), initial[i]);
}
END_TEST

START_TEST(variables)
{
	read_env("GPUMEM_HISTORY=0", "GPUMEM_SNAPSHOT_ON=oom,signal", "GPUMEM_SIGNAL=sigusr2",
		 "GPUMEM_OUTPUT=/tmp/a b:c,%r.json");
	check_quiet();
	ck_assert_uint_eq(options.history, 0);
	ck_assert_uint_eq(options.snapshot_on, GM_ON_OOM | GM_ON_SIGNAL);
	ck_assert_str_eq(as_text(GM_OPTION_snapshot_on), "signal,oom");
	ck_assert_uint_eq(options.signal, 12);
	ck_assert_str_eq(options.output, "/tmp/a b:c,%r.json");
	ck_assert_str_eq(gm_options_source(&options, GM_OPTION_history), "environment");
	ck_assert_str_eq(gm_options_source(&options, GM_OPTION_verbose), "default");
}
END_TEST

START_TEST(conf)
{
	read_one("GPUMEM_CONF= history:10 ,snapshot_on:[exit, crash], output:/x:y/%p,"
		 "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],expandable_segments:True,"
		 "garbage_collection_threshold:0.8,backend:cudaMallocAsync,,");
	check_quiet();
	ck_assert_uint_eq(options.history, 10);
	ck_assert_uint_eq(options.snapshot_on, GM_ON_EXIT | GM_ON_CRASH);
	ck_assert_str_eq(options.output, "/x:y/%p");
	ck_assert(options.expandable_segments);
	ck_assert_double_eq_tol(options.garbage_collection_threshold, 0.8, 1e-9);
	ck_assert_str_eq(as_text(GM_OPTION_garbage_collection_threshold), "0.8");
	ck_assert_str_eq(as_text(GM_OPTION_backend), "cudaMallocAsync");
	ck_assert_str_eq(gm_options_source(&options, GM_OPTION_history), "GPUMEM_CONF");
}
END_TEST

/* A list of words needs no brackets: what has no colon goes on with it. */
START_TEST(conf_words)
{
	read_one("GPUMEM_CONF=snapshot_on:exit, oom,history:10,history_actions:alloc,segment");
	check_quiet();
	ck_assert_uint_eq(options.snapshot_on, GM_ON_EXIT | GM_ON_OOM);
	ck_assert_uint_eq(options.history, 10);
	ck_assert_str_eq(as_text(GM_OPTION_history_actions), "alloc,segment");
	read_one("GPUMEM_CONF=snapshot_on:exit,oom,,");
	check_quiet();
	ck_assert_uint_eq(options.snapshot_on, GM_ON_EXIT | GM_ON_OOM);
	read_one("GPUMEM_CONF=snapshot_on:exit,never,stacks:none");
	ck_assert_str_eq(as_text(GM_OPTION_snapshot_on), "exit,signal,oom,crash");
	ck_assert_uint_eq(options.stacks, GM_STACKS_NONE);
}
END_TEST

START_TEST(variable_wins)
{
	read_env("GPUMEM_HISTORY=7", "GPUMEM_CONF=history:5,verbose:1", NULL, NULL);
	check_quiet();
	ck_assert_uint_eq(options.history, 7);
	ck_assert_uint_eq(options.verbose, 1);
	/* A bad one leaves what GPUMEM_CONF said. */
	read_env("GPUMEM_HISTORY=many", "GPUMEM_CONF=history:5", NULL, NULL);
	ck_assert_int_eq(said_count, 1);
	ck_assert_uint_eq(options.history, 5);
	ck_assert_str_eq(said[0], "GPUMEM_HISTORY=many is not allowed: it takes a number from 0 to "
			 "1073741824 (events of 64 bytes, taken as used); using 5");
}
END_TEST

START_TEST(sizes)
{
	static const struct { const char *text; uint64_t bytes; } good[] = {
		{ "1", 1 }, { "4096", 4096 }, { "512MB", 512u << 20 }, { "512MiB", 512u << 20 },
		{ "512 mb", 512u << 20 }, { "40GiB", UINT64_C(40) << 30 }, { "40g", UINT64_C(40) << 30 },
		{ "1.5GiB", UINT64_C(3) << 29 }, { "2T", UINT64_C(2) << 40 }, { "100B", 100 },
		{ "3k", 3072 }, { "unlimited", GM_UNLIMITED }, { "none", GM_UNLIMITED },
	};
	static const char *const bad[] = {
		"", "0", "-1", "1.5", "GiB", "12XB", "1GiBs", "1e9", "0x10", "18446744073709551615",
		"18446744073709551616", "99999999999T", ".", "1..5G", "1 2", "1Gi b",
	};
	char variable[128];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(variable, sizeof(variable), "GPUMEM_MEMORY_LIMIT=%s", good[i].text);
		read_one(variable);
		check_quiet();
		ck_assert_msg(options.memory_limit == good[i].bytes, "%s", good[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(variable, sizeof(variable), "GPUMEM_MEMORY_LIMIT=%s", bad[i]);
		read_one(variable);
		ck_assert_msg(said_count == 1, "'%s' was taken", bad[i]);
		ck_assert_uint_eq(options.memory_limit, GM_UNLIMITED);
	}
}
END_TEST

/* Every type: one value that is taken, one that is not; the text that comes out. */
START_TEST(types)
{
	static const struct { const char *variable; enum gm_option_id id; const char *text; } good[] = {
		{ "GPUMEM_FOLLOW=no", GM_OPTION_follow, "no" },
		{ "GPUMEM_FOLLOW=False", GM_OPTION_follow, "no" },
		{ "GPUMEM_FOLLOW=1", GM_OPTION_follow, "yes" },
		{ "GPUMEM_EXPANDABLE_SEGMENTS=yes", GM_OPTION_expandable_segments, "True" },
		{ "GPUMEM_STACKS=Native", GM_OPTION_stacks, "native" },
		{ "GPUMEM_FREE=deferred", GM_OPTION_free, "deferred" },
		{ "GPUMEM_SIGNAL=none", GM_OPTION_signal, "none" },
		{ "GPUMEM_SIGNAL=40", GM_OPTION_signal, "40" },
		{ "GPUMEM_SIGNAL=12", GM_OPTION_signal, "USR2" },
		{ "GPUMEM_SNAPSHOT_ON=none", GM_OPTION_snapshot_on, "none" },
		{ "GPUMEM_SNAPSHOT_ON=[exit,exit]", GM_OPTION_snapshot_on, "exit" },
		{ "GPUMEM_PER_PROCESS_MEMORY_FRACTION=.25", GM_OPTION_per_process_memory_fraction, "0.25" },
		{ "GPUMEM_PER_PROCESS_MEMORY_FRACTION=0", GM_OPTION_per_process_memory_fraction, "0" },
		{ "GPUMEM_MAX_SPLIT_SIZE_MB=128", GM_OPTION_max_split_size_mb, "128" },
		{ "GPUMEM_MAX_SPLIT_SIZE_MB=1GiB", GM_OPTION_max_split_size_mb, "1024" },
		{ "GPUMEM_EXPANDABLE_SEGMENTS_RESERVE=40G", GM_OPTION_expandable_segments_reserve, "40G" },
		{ "GPUMEM_EXPANDABLE_SEGMENTS_RESERVE=1.25", GM_OPTION_expandable_segments_reserve, "1.25" },
		{ "GPUMEM_PINNED_NUM_REGISTER_THREADS=64", GM_OPTION_pinned_num_register_threads, "64" },
		{ "GPUMEM_ROUNDUP_POWER2_DIVISIONS=4", GM_OPTION_roundup_power2_divisions, "4" },
		{ "GPUMEM_JOURNAL=", GM_OPTION_journal, "" },
	};
	static const char *const bad[] = {
		"GPUMEM_FOLLOW=maybe", "GPUMEM_FOLLOW=", "GPUMEM_STACKS=some", "GPUMEM_STACKS=",
		"GPUMEM_STACKS=all,native", "GPUMEM_SIGNAL=KILL", "GPUMEM_SIGNAL=9",
		"GPUMEM_SIGNAL=11", "GPUMEM_SIGNAL=33", "GPUMEM_SIGNAL=65", "GPUMEM_SIGNAL=",
		"GPUMEM_SNAPSHOT_ON=", "GPUMEM_SNAPSHOT_ON=none,exit", "GPUMEM_SNAPSHOT_ON=exit,boom",
		"GPUMEM_SNAPSHOT_ON=[]", "GPUMEM_PER_PROCESS_MEMORY_FRACTION=1.01",
		"GPUMEM_PER_PROCESS_MEMORY_FRACTION=-1", "GPUMEM_GARBAGE_COLLECTION_THRESHOLD=0",
		"GPUMEM_GARBAGE_COLLECTION_THRESHOLD=1", "GPUMEM_LARGE_SEGMENT_SIZE_MB=10",
		"GPUMEM_LARGE_SEGMENT_SIZE_MB=unlimited", "GPUMEM_MAX_SPLIT_SIZE_MB=19",
		"GPUMEM_MAX_SPLIT_SIZE_MB=20.5", "GPUMEM_MAX_NON_SPLIT_ROUNDING_MB=1",
		"GPUMEM_PINNED_NUM_REGISTER_THREADS=some", "GPUMEM_OUTPUT=", "GPUMEM_STACK_DEPTH=0",
		"GPUMEM_OOM_SNAPSHOTS=33", "GPUMEM_HISTORY=1k", "GPUMEM_HISTORY=99999999999999999999",
		"GPUMEM_ALLOCATOR=pytorch", "GPUMEM_OUTPUT=a\nb",
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		read_one(good[i].variable);
		check_quiet();
		ck_assert_msg(strcmp(as_text(good[i].id), good[i].text) == 0, "%s: %s",
			      good[i].variable, as_text(good[i].id));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct gm_options initial;

		read_env(NULL, NULL, NULL, NULL);
		initial = options;
		read_one(bad[i]);
		ck_assert_msg(said_count == 1, "%s: %d lines, '%s'", bad[i], said_count, said[0]);
		ck_assert_msg(strncmp(said[0], bad[i], strlen(bad[i])) == 0, "%s", said[0]);
		ck_assert_msg(memcmp(&initial, &options, sizeof(options)) == 0, "%s", bad[i]);
	}
}
END_TEST

/* torch: c10/core/AllocatorConfig.cpp, parseRoundUpPower2Divisions. */
START_TEST(divisions)
{
	static const struct { const char *text; uint32_t bins[16]; } good[] = {
		{ "0", { 0 } },
		{ "[64:8,256:4,1024:4,>:1]",
		  { 8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1 } },
		{ "[256:1,512:2,1024:4,>:8]",
		  { 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8 } },
		{ "[1:2]", { 2 } },
		{ "[65536:4]", { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 } },
		{ "[ 2 : 0 , 4 : 16 ]", { 0, 0, 16 } },
	};
	static const char *const bad[] = { "3", "[]", "[3:1]", "[256:3]", "[256]", "[:1]", "[256:1,,]",
					   "[256:1:2]", "[>]", "x", "[1:1" };
	char variable[4096];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(variable, sizeof(variable), "GPUMEM_ROUNDUP_POWER2_DIVISIONS=%s",
			 good[i].text);
		read_one(variable);
		check_quiet();
		for (int bin = 0; bin < 16; bin++)
			ck_assert_msg(options.roundup_power2_divisions.bins[bin] == good[i].bins[bin],
				      "%s: bin %d is %u", good[i].text, bin,
				      options.roundup_power2_divisions.bins[bin]);
		/* What is told can be given. */
		snprintf(variable, sizeof(variable), "GPUMEM_ROUNDUP_POWER2_DIVISIONS=%s",
			 as_text(GM_OPTION_roundup_power2_divisions));
		read_one(variable);
		check_quiet();
		for (int bin = 0; bin < 16; bin++)
			ck_assert_uint_eq(options.roundup_power2_divisions.bins[bin],
					  good[i].bins[bin]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(variable, sizeof(variable), "GPUMEM_ROUNDUP_POWER2_DIVISIONS=%s", bad[i]);
		read_one(variable);
		ck_assert_msg(said_count == 1, "'%s' was taken", bad[i]);
	}
}
END_TEST

/* A limit may depend on another option, whatever their order. */
START_TEST(dependent)
{
	read_one("GPUMEM_CONF=max_split_size_mb:64,large_segment_size_mb:128");
	ck_assert_int_eq(said_count, 1);
	ck_assert_str_eq(said[0], "GPUMEM_CONF: max_split_size_mb:64 is not allowed: it takes a "
			 "number of MiB from 128 (large_segment_size_mb) up; using unlimited");
	ck_assert_uint_eq(options.max_split_size_mb, GM_UNLIMITED);
	ck_assert_uint_eq(options.max_non_split_rounding_mb, 128u << 20);
	read_one("GPUMEM_CONF=max_split_size_mb:128,large_segment_size_mb:128");
	check_quiet();
}
END_TEST

START_TEST(unknown)
{
	read_env("GPUMEM_HISTROY=1", "GPUMEM_CONF=max_split_size:3,stack:all,colours", "GPUMEM_=1",
		 "GPUMEM_SOMETHING_ELSE=1");
	ck_assert_int_eq(said_count, 6);
	ck_assert_str_eq(said[0], "GPUMEM_CONF: max_split_size is not an option "
			 "(`gpumem options` lists them)");
	ck_assert_str_eq(said[1], "GPUMEM_CONF: stack is not an option: did you mean "
			 "GPUMEM_CONF: stacks?");
	ck_assert_str_eq(said[3], "GPUMEM_HISTROY is not an option: did you mean GPUMEM_HISTORY?");
	ck_assert_str_eq(said[5], "GPUMEM_SOMETHING_ELSE is not an option "
			 "(`gpumem options` lists them)");
}
END_TEST

START_TEST(missing_value)
{
	read_one("GPUMEM_CONF=history");
	ck_assert_int_eq(said_count, 1);
	ck_assert_ptr_nonnull(strstr(said[0], "GPUMEM_CONF: history: is not allowed"));
	ck_assert_uint_eq(options.history, 1048576);
}
END_TEST

/* A thousand mistakes are not a thousand lines, and a long value is not a long line. */
START_TEST(capped)
{
	static char long_one[70000] = "GPUMEM_CONF=";
	char *at = long_one + strlen(long_one);

	for (int i = 0; i < 1000; i++)
		at += sprintf(at, "unknown%d:1,", i);
	read_one(long_one);
	ck_assert_int_eq(said_count, 17);
	ck_assert_str_eq(said[16], "more is wrong with the options than is said here");
	strcpy(long_one, "GPUMEM_HISTORY=");
	memset(long_one + strlen(long_one), '9', 65000);
	read_one(long_one);
	ck_assert_int_eq(said_count, 1);
	ck_assert_uint_lt(strlen(said[0]), 512);
	strcpy(long_one, "GPUMEM_OUTPUT=/");
	memset(long_one + strlen(long_one), 'x', 1023);
	long_one[strlen("GPUMEM_OUTPUT=/") + 1023] = '\0';
	read_one(long_one);
	ck_assert_int_eq(said_count, 1);
}
END_TEST

START_TEST(cut)
{
	char text[8];

	read_env(NULL, NULL, NULL, NULL);
	ck_assert_uint_eq(gm_options_format(&options, GM_OPTION_output, text, sizeof(text)), 20);
	ck_assert_str_eq(text, "gpumem.");
	ck_assert_uint_eq(gm_options_format(&options, GM_OPTION_output, NULL, 0), 20);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("options");
	TCase *tests = tcase_create("options");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, defaults);
	tcase_add_test(tests, defaults_round_trip);
	tcase_add_test(tests, variables);
	tcase_add_test(tests, conf);
	tcase_add_test(tests, conf_words);
	tcase_add_test(tests, variable_wins);
	tcase_add_test(tests, sizes);
	tcase_add_test(tests, types);
	tcase_add_test(tests, divisions);
	tcase_add_test(tests, dependent);
	tcase_add_test(tests, unknown);
	tcase_add_test(tests, missing_value);
	tcase_add_test(tests, capped);
	tcase_add_test(tests, cut);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
