/*
 * race.h - what the tests of the race detector share: two streams, memory, and what was reported.
 */
#ifndef TEST_RACE_H
#define TEST_RACE_H

#include "work.h"

static CUstream a, b;
static CUdeviceptr p;

UNUSED static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	p = alloc(1 << 20);
}

UNUSED static void dump(char *text, size_t size)
{
	FILE *f = tmpfile();
	size_t n;

	ck_assert_ptr_nonnull(f);
	fakecuda_dump(fileno(f));
	rewind(f);
	n = fread(text, 1, size - 1, f);
	text[n] = '\0';
	fclose(f);
}

UNUSED static void no_races(void)
{
	ck_assert_msg(!fakecuda_races(), "%s", fakecuda_race_text(0));
}

UNUSED static void races(const char *rule)
{
	ck_assert_uint_ge(fakecuda_races(), 1);
	ck_assert_msg(strstr(fakecuda_race_text(0), rule) != NULL, "%s", fakecuda_race_text(0));
}

#endif
