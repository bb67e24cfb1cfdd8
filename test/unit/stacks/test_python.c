/*
 * test_python.c - Python stacks: every CPython that is found here compares its own stacks with the
 * recorder's (python/frames.py); and a stand-in for one (python/fakepython.c) shows what a real one
 * should not: odd pointers, chains without end, other versions.
 */
#define _GNU_SOURCE
#include <check.h>
#include <dlfcn.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/modules/modules.h"
#include "recorder/modules/object_symbol.h"
#include "recorder/python/python.h"
#include "recorder/journal/recorder.h"
#include "recorder/stacks/stacks.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#endif

static const char *helper_path(const char *name)
{
	static char path[PATH_MAX];
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	ck_assert_int_gt(n, 0);
	self[n] = '\0';
	ck_assert_int_lt(snprintf(path, sizeof(path), "%s/python/%s", dirname(self), name),
			 (int)sizeof(path));
	return path;
}

/* ---- every interpreter there is ---- */

#define INTERPRETERS_MOST 32
static char interpreters[INTERPRETERS_MOST][PATH_MAX];
static int interpreters_count;

/* A path to a Python that runs and has ctypes, once for each. */
static void add_interpreter(const char *path)
{
	char command[PATH_MAX + 200], real[PATH_MAX];
	FILE *pipe;

	snprintf(command, sizeof(command), "'%s' -c 'import ctypes, sys, os; "
		 "print(os.path.realpath(sys.executable))' 2>/dev/null", path);
	pipe = popen(command, "r");
	if (!pipe)
		return;
	if (!fgets(real, sizeof(real), pipe))
		real[0] = '\0';
	pclose(pipe);
	real[strcspn(real, "\n")] = '\0';
	for (int i = 0; i < interpreters_count; i++)
		if (!strcmp(interpreters[i], real))
			return;
	if (real[0] == '/' && interpreters_count < INTERPRETERS_MOST)
		strcpy(interpreters[interpreters_count++], real);
}

static void find_interpreters(void)
{
	static const char *const patterns[] = {
		"/usr/bin/python3", "/usr/bin/python3.[0-9]*[0-9]",
		"/usr/local/bin/python3.[0-9]*[0-9]", "/opt/*/bin/python3",
		"~/.pyenv/versions/3*/bin/python3", "~/.local/share/uv/python/*/bin/python3",
	};
	glob_t found;

	add_interpreter("python3");
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (glob(patterns[i], GLOB_TILDE, NULL, &found))
			continue;
		for (size_t k = 0; k < found.gl_pathc; k++)
			if (!strstr(found.gl_pathv[k], "config"))
				add_interpreter(found.gl_pathv[k]);
		globfree(&found);
	}
}

#ifndef INSTRUMENTED
START_TEST(interpreter)
{
	const char *python = interpreters[_i];
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		execl(python, python, "test/unit/python/frames.py", helper_path("pyframes_ubsan.so"),
		      aux_directory, (char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "%s ended with status %#x", python, (unsigned int)status);
}
END_TEST
#endif

/* ---- a stand-in ---- */

struct fake_code {			/* as 3.12 has it */
	uint64_t words[32];
};

struct fake_frame {
	uint64_t words[11];
};

static void *fake;
static int (*fake_eval)(int (*inner)(void *), void *argument);
static char note[256];
static unsigned int notes;

static uint64_t text_object[16], bytes_object[16];
static struct fake_code code;
static struct fake_frame frames[8];
static uint64_t cframe[4], state[64];

static void keep_note(const char *line)
{
	snprintf(note, sizeof(note), "%s", line);
	notes++;
}

static void *symbol(const char *name)
{
	void *found = dlsym(fake, name);

	ck_assert_msg(found != NULL, "%s", name);
	return found;
}

/* Frames of one code object, the outermost last; behind it @shim, 0: nothing. */
static void chain(int count, uintptr_t shim)
{
	for (int i = 0; i < count; i++) {
		memset(&frames[i], 0, sizeof(frames[i]));
		frames[i].words[0] = (uintptr_t)&code;
		frames[i].words[1] = i + 1 < count ? (uintptr_t)&frames[i + 1] : shim;
		frames[i].words[7] = (uintptr_t)&code + 192 + 2 * (uintptr_t)i;
	}
	cframe[0] = (uintptr_t)frames;
}

static void start_fake(const char *version)
{
	const char *path = helper_path("fakepython.so");

	fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(fake != NULL, "%s", dlerror());
	*(void **)&fake_eval = symbol("_PyEval_EvalFrameDefault");
	*(const char **)symbol("fake_version") = version;
	text_object[1] = (uintptr_t)symbol("PyUnicode_Type");
	text_object[2] = 4;
	text_object[4] = 1 << 2 | 1 << 5 | 1 << 6;	/* 1 byte a character, compact, ASCII */
	memcpy((char *)text_object + 40, "fake", 4);
	bytes_object[1] = (uintptr_t)symbol("PyBytes_Type");
	bytes_object[2] = 2;
	memcpy((char *)bytes_object + 32, "\x80\xd8", 2);	/* a unit of line 0, one of +1 ... */
	((uint8_t *)bytes_object)[32] = 0x80 | 10 << 3 | 0;
	((uint8_t *)bytes_object)[33] = 0x80 | 11 << 3 | 7;
	memset(&code, 0, sizeof(code));
	code.words[1] = (uintptr_t)symbol("PyCode_Type");
	code.words[2] = 16;
	((int32_t *)code.words)[17] = 70;		/* the first line */
	code.words[14] = code.words[16] = (uintptr_t)text_object;
	code.words[17] = (uintptr_t)bytes_object;
	state[7] = (uintptr_t)cframe;
	state[17] = (uintptr_t)pthread_self();
	*(void **)symbol("fake_state") = state;
	aux_start(64);
	gm_python_init(keep_note);
	gm_stacks_configure(true, true, 64);
}

static uint32_t captured;

static int capture(void *shim)
{
	struct gm_regs regs;
	uint16_t module;

	(void)shim;
	gm_regs_capture(&regs);
	captured = gm_stacks_capture(&regs, &module);
	return 0;
}

/* How many Python frames the stack has; their lines, innermost first. */
static int python_frames(uint32_t stack_id, unsigned int lines[8], bool *ret_cut)
{
	const struct gm_stack *stack;
	struct gm_copy copy;
	int count = 0;

	aux_copy(&copy);
	stack = gm_copy_stack(&copy, stack_id);
	ck_assert_ptr_nonnull(stack);
	*ret_cut = stack->flags & 1;
	for (unsigned int i = 0; i < stack->count; i++) {
		const struct gm_frame *frame = gm_copy_frame(&copy, stack->frames[i]);

		ck_assert_ptr_nonnull(frame);
		if ((frame->flags & GM_FRAME_PYTHON) && count < 8)
			lines[count++] = frame->line;
	}
	ck_assert_int_gt((int)stack->count, count);		/* native ones, too */
	gm_copy_free(&copy);
	return count;
}

static int frames_now(void)
{
	unsigned int lines[8] = { 0 };
	bool cut;
	int count;

	fake_eval(capture, state);
	count = python_frames(captured, lines, &cut);
	ck_assert_int_eq(cut, 0);
	for (int i = 0; i < count; i++)
		ck_assert_uint_eq(lines[i], i == 0 ? 70 : 71);
	return count;
}

/* A thread that runs code of the interpreter's without being in any frame: its stack is interned
 * once, as any other (a search for interpreters in each would take a hundred times as long). */
START_TEST(without_frames_is_met_once)
{
	uint64_t met[3];

	start_fake("3.12.1 (main) [fake]");
	chain(3, 0);
	ck_assert_int_eq(frames_now(), 3);
	*(void **)symbol("fake_state") = NULL;
	for (volatile int i = 0; i < 3; i++) {
		fake_eval(capture, state);
		met[i] = gm_stacks_met;
	}
	ck_assert_uint_eq(met[1], met[0]);
	ck_assert_uint_eq(met[2], met[0]);
}
END_TEST

START_TEST(loaded_local_is_found)
{
	start_fake("3.12.1 (main) [fake]");
	chain(3, 0);
	ck_assert_int_eq(frames_now(), 3);
	for (int i = 0; i < 2 * (int)GM_PYTHON_PROOF; i++) {
		chain(1 + i % 5, 0);
		ck_assert_int_eq(frames_now(), 1 + i % 5);
	}
	ck_assert_uint_eq(notes, 0);
	*(int *)symbol("fake_finalizing") = 1;
	ck_assert_int_eq(frames_now(), 0);
	*(int *)symbol("fake_finalizing") = 0;
	*(void **)symbol("fake_state") = NULL;
	ck_assert_int_eq(frames_now(), 0);
	*(void **)symbol("fake_state") = state;
	ck_assert_int_eq(frames_now(), 2);
	gm_modules_generation_bump();
	ck_assert_int_eq(frames_now(), 2);
	ck_assert_uint_eq(notes, 0);
}
END_TEST

/* What cannot be the expected layout, while nothing is proved: native stacks, then off. */
START_TEST(other_layout_is_switched_off)
{
	uintptr_t nowhere = (uintptr_t)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
					    0);
	unsigned int lines[8];
	bool cut;

	start_fake("3.12.1 (main) [fake]");
	chain(2, 0);
	for (int i = 0; i < 40; i++) {
		unsigned int before = notes;

		cframe[0] = (uintptr_t)frames;
		code.words[1] = (uintptr_t)symbol("PyCode_Type");
		frames[0].words[1] = (uintptr_t)&frames[1];
		frames[0].words[0] = (uintptr_t)&code;
		state[17] = (uintptr_t)pthread_self();
		switch ((i + _i) % 8) {
		case 0:
			cframe[0] = 8;
			break;
		case 1:
			cframe[0] = nowhere;
			break;
		case 2:
			cframe[0] = (uintptr_t)frames + 1;
			break;
		case 3:
			code.words[1]++;
			break;
		case 4:
			frames[0].words[1] = UINT64_C(0xdeadbeefdeadbee8);
			break;
		case 5:
			frames[0].words[0] = nowhere + 4096 - 64;
			break;
		case 6:
			state[17]++;
			break;
		case 7:
			frames[0].words[7] = (uintptr_t)&code + 192 + 4000;
			break;
		}
		fake_eval(capture, state);
		ck_assert_int_le(python_frames(captured, lines, &cut), 1);
		ck_assert_int_eq(cut, !before);
	}
	ck_assert_uint_eq(notes, 1);
	ck_assert_str_eq(note, "Python stacks are off: CPython 3.12 does not keep its frames where "
			       "it should");
}
END_TEST

/* Once proved: what is odd ends the Python part, marked; what is native stays. */
START_TEST(odd_frames_end_the_python_part)
{
	unsigned int lines[8];
	struct fake_code other;
	bool cut;

	start_fake("3.12.1 (main) [fake]");
	chain(5, 0);
	for (unsigned int i = 0; i < 2 * GM_PYTHON_PROOF; i++)
		ck_assert_int_eq(frames_now(), 5);
	other = code;
	other.words[1] = 0;
	frames[3].words[0] = (uintptr_t)&other;
	fake_eval(capture, state);
	ck_assert_int_eq(python_frames(captured, lines, &cut), 3);
	ck_assert_int_eq(cut, 1);
	chain(5, (uintptr_t)&frames[2]);	/* without end */
	fake_eval(capture, state);
	ck_assert_int_gt(python_frames(captured, lines, &cut), 5);
	ck_assert_int_eq(cut, 1);
	chain(5, 4097);
	fake_eval(capture, state);
	ck_assert_int_eq(python_frames(captured, lines, &cut), 5);
	ck_assert_int_eq(cut, 1);
	chain(5, 0);
	ck_assert_int_eq(frames_now(), 5);
	ck_assert_uint_eq(notes, 0);
}
END_TEST

static void no_tables_between(void *arg)
{
	(void)arg;
	capture(NULL);
}

static void (*call_without_tables)(void (*callback)(void *), void *arg);

static int capture_without_tables(void *shim)
{
	(void)shim;
	call_without_tables(no_tables_between, NULL);
	return 0;
}

/* A native stack that ends before it comes to Python: Python's frames follow, the whole is marked;
 * and the interpreter is found although no stack ever showed it. */
START_TEST(frames_behind_code_without_tables)
{
	void *handle = dlopen(helper_path("../unwind/notables.so"), RTLD_NOW | RTLD_LOCAL);
	unsigned int lines[8];
	bool cut;

	ck_assert_msg(handle != NULL, "%s", dlerror());
	*(void **)&call_without_tables = dlsym(handle, "notables_call");
	start_fake("3.12.1 (main) [fake]");
	chain(4, 0);
	for (unsigned int i = 0; i < 2 * GM_PYTHON_PROOF; i++) {
		fake_eval(capture_without_tables, state);
		ck_assert_int_eq(python_frames(captured, lines, &cut), 4);
		ck_assert_int_eq(cut, 1);
	}
	ck_assert_int_eq(frames_now(), 4);
}
END_TEST

START_TEST(version_is_said)
{
	static const struct { const char *version, *said; } versions[] = {
		{ "3.14.0 (main)", "3.14.0 does not say where its frames are in a way that is "
				   "known here" },
		{ "3.13.0 experimental free-threading build (main)",
		  "3.13.0 does not say where its frames are in a way that is known here" },
		{ "3.7.16 (x)", "3.7.16 is not known here (CPython 3.8 and later are)" },
		{ "2.7.18", "2.7.18 is not known here (CPython 3.8 and later are)" },
		{ "4.0.1", "4.0.1 is not known here (CPython 3.8 and later are)" },
		{ "3.9.19 (x) [PyPy 7.3.16]", "3.9.19 is PyPy" },
		{ "", " is not known here (CPython 3.8 and later are)" },
	};
	char line[256];

	start_fake(versions[_i].version);
	chain(2, 0);
	ck_assert_int_eq(frames_now(), 0);
	ck_assert_int_eq(frames_now(), 0);
	snprintf(line, sizeof(line), "Python stacks are off: CPython %s", versions[_i].said);
	ck_assert_str_eq(note, line);
	ck_assert_uint_eq(notes, 1);
}
END_TEST

/* ---- tables ---- */

static uint32_t line_in(unsigned int minor, const void *table, size_t bytes, int64_t at)
{
	return gm_python_line(minor, (uintptr_t)table, bytes, 100, at);
}

START_TEST(line_tables)
{
	static const uint8_t steps[] = { 4, 1, 6, 10, 255, 0, 45, 0xfe };
	static const uint8_t ranges[] = { 4, 0, 2, 0x80, 6, 5, 4, 0xfb };
	static const uint8_t entries[] = {
		0x80 | 10 << 3 | 1, 3, 9,	/* 2 units, line +0 */
		0x80 | 15 << 3 | 0,		/* 1 unit, no line */
		0x80 | 13 << 3 | 0, 20,		/* 1 unit, line +10 */
		0x80 | 14 << 3 | 7, 0x41, 0x02, 1, 1, 1,	/* 8 units, line -(65 >> 1 | ...) */
		0x80 | 1 << 3 | 2, 5,		/* 3 units, short form */
	};

	ck_assert_uint_eq(line_in(8, steps, sizeof(steps), -1), 100);
	ck_assert_uint_eq(line_in(8, steps, sizeof(steps), 3), 100);
	ck_assert_uint_eq(line_in(8, steps, sizeof(steps), 4), 101);
	ck_assert_uint_eq(line_in(9, steps, sizeof(steps), 10), 111);
	ck_assert_uint_eq(line_in(9, steps, sizeof(steps), 309), 111);
	ck_assert_uint_eq(line_in(9, steps, sizeof(steps), 310), 109);
	ck_assert_uint_eq(line_in(10, ranges, sizeof(ranges), 3), 100);
	ck_assert_uint_eq(line_in(10, ranges, sizeof(ranges), 4), 0);
	ck_assert_uint_eq(line_in(10, ranges, sizeof(ranges), 6), 105);
	ck_assert_uint_eq(line_in(10, ranges, sizeof(ranges), 15), 100);
	ck_assert_uint_eq(line_in(10, ranges, sizeof(ranges), 16), 0);
	ck_assert_uint_eq(line_in(10, ranges, sizeof(ranges), -2), 100);
	for (unsigned int minor = 11; minor <= 13; minor++) {
		ck_assert_uint_eq(line_in(minor, entries, sizeof(entries), 0), 100);
		ck_assert_uint_eq(line_in(minor, entries, sizeof(entries), 4), 0);
		ck_assert_uint_eq(line_in(minor, entries, sizeof(entries), 6), 110);
		/* 0x41 0x02: 1 + (2 << 6) = 129: -(129 >> 1) */
		ck_assert_uint_eq(line_in(minor, entries, sizeof(entries), 8), 46);
		ck_assert_uint_eq(line_in(minor, entries, sizeof(entries), 24), 46);
		ck_assert_uint_eq(line_in(minor, entries, sizeof(entries), 30), 0);
	}
}
END_TEST

/* Whatever is in a table: an answer in bounded time, nothing read beyond it. */
START_TEST(any_line_table)
{
	uint8_t *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int seed = 1;

	ck_assert(pages != MAP_FAILED);
	ck_assert_int_eq(mprotect(pages + 4096, 4096, PROT_NONE), 0);
	for (int i = 0; i < 3000; i++) {
		size_t bytes = (size_t)rand_r(&seed) % 700;
		uint8_t *table = pages + 4096 - bytes;

		for (size_t k = 0; k < bytes; k++)
			table[k] = (uint8_t)rand_r(&seed);
		for (unsigned int minor = 8; minor <= 13; minor++) {
			line_in(minor, table, bytes, rand_r(&seed) % 4000);
			line_in(minor, table, bytes + 9000, INT64_MAX);
			line_in(minor, table, SIZE_MAX, INT64_MAX);
		}
	}
}
END_TEST

START_TEST(symbols_are_those_of_dlsym)
{
	static const char *const names[] = { "malloc", "qsort", "environ", "pthread_create",
					     "no_such_function", "", "_start_it" };
	struct gm_symbols symbols;
	struct gm_object object;
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	size_t bytes = 0;

	ck_assert_ptr_nonnull(libc);
	ck_assert(gm_object_find((uintptr_t)dlsym(libc, "qsort"), &object));
	ck_assert(gm_symbols_open(&symbols, &object));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_uint_eq(gm_symbols_find(&symbols, names[i], NULL),
				  (uintptr_t)dlsym(libc, names[i]));
	ck_assert_uint_ne(gm_symbols_find(&symbols, "qsort", &bytes), 0);
	ck_assert_uint_gt(bytes, 0);
	dlclose(libc);
	/* the vDSO, whose tables the loader has not touched */
	object = (struct gm_object){ .start = getauxval(AT_SYSINFO_EHDR) };
	object.end = object.start + 8192;
	if (object.start && gm_symbols_open(&symbols, &object))
		ck_assert_uint_eq(gm_symbols_find(&symbols, "no_such_function", NULL), 0);
	object.start = (uintptr_t)&symbols;
	ck_assert(!gm_symbols_open(&symbols, &object));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("python");
	TCase *parts = tcase_create("parts"), *real = tcase_create("interpreters");

	tcase_add_unchecked_fixture(parts, aux_directory_make, aux_directory_remove);
	tcase_add_test(parts, line_tables);
	tcase_add_test(parts, any_line_table);
	tcase_add_test(parts, without_frames_is_met_once);
	tcase_add_test(parts, loaded_local_is_found);
	tcase_add_loop_test(parts, other_layout_is_switched_off, 0, 8);
	tcase_add_test(parts, odd_frames_end_the_python_part);
#if defined(__x86_64__)
	tcase_add_test(parts, frames_behind_code_without_tables);
#else
	(void)frames_behind_code_without_tables;
#endif
	tcase_add_loop_test(parts, version_is_said, 0, 7);
	tcase_set_timeout(parts, 60);
	suite_add_tcase(suite, parts);
	tcase_add_test(parts, symbols_are_those_of_dlsym);
#ifndef INSTRUMENTED
	find_interpreters();
	tcase_add_unchecked_fixture(real, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(real, interpreter, 0, interpreters_count);
	tcase_set_timeout(real, 100);
	if (!interpreters_count) {
		printf("not ok 1 - no python3 with ctypes here: nothing to compare with\n");
		return 1;
	}
#else
	(void)find_interpreters;
#endif
	suite_add_tcase(suite, real);
	return run_suite(suite);
}
