/*
 * aux_journal.h - a directory of the test's own, and a recorder that lays its journal there.
 *
 * aux_directory_make/_remove are an unchecked fixture (they run in the parent of the forked tests,
 * so that nothing stays behind after a test that fails); aux_directory is the recorder's
 * "/dev/shm" for every test.
 */
#ifndef GM_TEST_AUX_JOURNAL_H
#define GM_TEST_AUX_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/recorder.h"
#include "test/unit/journal/aux_check.h"
#include "test/unit/journal/aux_forget.h"

/*
 * An assertion for what a forked child runs that is killed at some moment: a ck_assert that holds writes to libcheck's
 * pipe all the same, and a child killed in the middle of that leaves half a message, at which libcheck gives up the run.
 */
#define AUX_MUST(what) \
	do { \
		if (!(what)) \
			ck_abort_msg("%s", #what); \
	} while (0)

extern char aux_directory[256];		/* in memory where there is a /dev/shm */
extern struct gm_recorder_report aux_report;

void aux_directory_make(void);
void aux_directory_remove(void);

/* gm_recorder_start with this history and place; the report is in aux_report. */
int aux_try_start(uint64_t history, const char *place);
/* The same in the usual place, with modules 1 to AUX_MODULES; the test fails when it fails. */
#define AUX_MODULES 16
void aux_start(uint64_t history);

/* Modules with the numbers from @first to @last, the next ones of the journal. */
void aux_publish_modules(uint64_t first, uint64_t last);

/* gm_sys with every entry counting its calls; the aux_fail_at-th of them (from 1; 0: none) fails
 * with the errno that is likely there; with aux_fail_on all from that one on. */
extern unsigned int aux_calls, aux_fail_at;
extern bool aux_fail_on;
void aux_sys_wrap(void);

/* Entries of a directory whose names end with @end. */
unsigned int aux_entries(const char *directory, const char *end);
/* Write a file in aux_directory, and the directories that its name goes through. */
void aux_put_file(const char *name, const char *content);
/* Descriptors that this process has open. */
unsigned int aux_descriptors(void);

/* An allocation as a hook would record it: 1 MiB and a bit unless @size says otherwise. */
struct gm_alloc aux_alloc(uint8_t domain, uint64_t address, uint64_t size);

/* Record one; the test fails when it fails. Returns the block. */
uint32_t aux_record(uint8_t domain, uint64_t address, uint64_t size);

/* The test fails unless gm_recorder_check() and the ranks of the locks are clean. */
void aux_sound(void);

/* How many events with this action the journal holds, after undo and sorting; SIZE_MAX on error. */
size_t aux_count_events(int action);

/* How many have this stack. */
size_t aux_count_stacks(uint32_t stack);

struct gm_copy;
/* A resolved copy of the living journal, checked; the caller frees it. */
void aux_copy(struct gm_copy *ret_copy);

/* How long a stress may take: the test's own default, times the variable GM_STRESS. */
unsigned long aux_effort(unsigned long usual);

#endif
