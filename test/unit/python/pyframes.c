/*
 * pyframes.c - for Python through ctypes: a recorder of its own, and what it made of the stack it
 * was called on. Not thread-safe but for pyframes_capture.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recorder/journal/format.h"
#include "recorder/modules/modules.h"
#include "recorder/python/python.h"
#include "recorder/journal/recorder.h"
#include "recorder/stacks/stacks.h"

#define API __attribute__((visibility("default")))

/* Called by name alone. */
int pyframes_start(const char *directory, int native, int python, int depth);
void pyframes_configure(int native, int python, int depth);
const char *pyframes_note(void);
unsigned int pyframes_capture(void);
int pyframes_call(int (*function)(void));
int pyframes_call_in_thread(int (*function)(void));
int pyframes_call_large(int (*function)(void));
int pyframes_text(unsigned int id, char *buffer, int bytes);
double pyframes_time(int times);
double pyframes_time_cold(int times, int bytes);
double pyframes_time_new(int times);
double pyframes_time_walk(int times, int depth, int *ret_frames);

static char note[256];
static const uint8_t *journal;

static void keep_note(const char *line)
{
	snprintf(note, sizeof(note), "%s", line);
}

static uint16_t publish(const struct gm_module_info *info)
{
	return gm_publish_module(info->base, info->start, info->end, info->path, info->build_id,
				 info->build_id_bytes);
}

API int pyframes_start(const char *directory, int native, int python, int depth)
{
	const struct gm_module_sink sink = { .publish = publish };
	const struct gm_recorder_config config = {
		.place = directory, .history_events = 64, .output = "", .version = "0", .rank = -1,
	};
	static struct gm_recorder_report report;
	int rc = gm_recorder_start(&config, &report);

	if (rc)
		return rc;
	gm_recorder_unlink();
	journal = (const void *)gm_recorder_header();
	gm_modules_init(&sink);
	gm_python_init(keep_note);
	gm_stacks_configure(native, python, (unsigned int)depth);
	return 0;
}

API void pyframes_configure(int native, int python, int depth)
{
	gm_stacks_configure(native, python, (unsigned int)depth);
}

API const char *pyframes_note(void)
{
	return note;
}

API unsigned int pyframes_capture(void)
{
	struct gm_regs regs;
	uint16_t module;

	gm_regs_capture(&regs);
	return gm_stacks_capture(&regs, &module);
}

/* Call back into Python from a frame with a name. */
API __attribute__((noinline)) int pyframes_call(int (*function)(void))
{
	volatile int result = function();

	return result;
}

static void *thread(void *function)
{
	pyframes_call((int (*)(void))function);
	return NULL;
}

API int pyframes_call_in_thread(int (*function)(void))
{
	pthread_t id;

	return pthread_create(&id, NULL, thread, (void *)function) || pthread_join(id, NULL);
}

/* A native frame larger than any, and one that ends somewhere else than it began. */
API __attribute__((noinline)) int pyframes_call_large(int (*function)(void))
{
	volatile char large[20000];

	large[0] = 1;
	return function() + large[0] - 1;
}

static const void *region(enum gm_region_id id)
{
	return journal + ((const struct gm_header *)journal)->regions[id].offset;
}

static const char *string(uint32_t id)
{
	return id ? ((const struct gm_string *)((const uint8_t *)region(GM_REGION_STRINGS) + id))->text
		  : "";
}

/* A line a frame, innermost first: P name file line, or N symbol module; "..." if cut. */
API int pyframes_text(unsigned int id, char *buffer, int bytes)
{
	const struct gm_stack *stack = (const void *)((const uint8_t *)region(GM_REGION_STACKS) + id);
	const struct gm_frame *frames = region(GM_REGION_FRAMES);
	const struct gm_module *modules = region(GM_REGION_MODULES);
	int used = 0;

	if (!id)
		return 0;
	for (unsigned int i = 0; i < stack->count && used < bytes; i++) {
		const struct gm_frame *f = &frames[stack->frames[i]];
		uint64_t base = f->module ? modules[f->module].base : 0;
		Dl_info info = { 0 };

		if (f->flags & GM_FRAME_PYTHON)
			used += snprintf(buffer + used, (size_t)(bytes - used), "P\t%s\t%s\t%u\n",
					 string(f->name), string(f->filename), f->line);
		else
			used += snprintf(buffer + used, (size_t)(bytes - used), "N\t%s\t%s\n",
					 dladdr((void *)(base + f->offset), &info) && info.dli_sname ?
					 info.dli_sname : "",
					 f->module ? string(modules[f->module].path) : "");
	}
	if (stack->flags & 1 && used < bytes)
		used += snprintf(buffer + used, (size_t)(bytes - used), "...\n");
	return used < bytes ? used : bytes;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ns of one capture from here, the stack known. */
API double pyframes_time(int times)
{
	double begin;

	for (int i = 0; i < 64; i++)
		pyframes_capture();
	begin = now_ns();
	for (int i = 0; i < times; i++)
		pyframes_capture();
	return (now_ns() - begin) / times;
}

/* The same with @bytes of other memory written before each: the caches are a busy program's. */
API double pyframes_time_cold(int times, int bytes)
{
	volatile char *other = malloc((size_t)bytes + 1);
	double sum = 0, begin;

	for (int i = 0; i < times + 64 && other; i++) {
		for (int k = 0; k < bytes; k += 64)
			other[k] = (char)i;
		begin = now_ns();
		pyframes_capture();
		if (i >= 64)
			sum += now_ns() - begin;
	}
	free((void *)other);
	return sum / times;
}

/* ns of one capture of a stack never seen, of frames that are known: each depth makes another one. */
API double pyframes_time_new(int times)
{
	double sum = 0;

	for (int i = 0; i < times; i++) {
		gm_stacks_configure(true, true, (unsigned int)(255 - i % 100));
		sum -= now_ns();
		pyframes_capture();
		sum += now_ns();
	}
	gm_stacks_configure(true, true, 256);
	return sum / times;
}

/* ns of one walk of the Python frames alone. */
API double pyframes_time_walk(int times, int depth, int *ret_frames)
{
	struct gm_python_walk walk = { .items = NULL };
	uintptr_t here[256];
	struct gm_regs regs;
	struct gm_python *python;
	double begin;
	int count;

	pyframes_capture();
	gm_regs_capture(&regs);
	count = gm_unwind(&regs, here, 256, NULL);
	python = gm_python_on(here, count, true);
	if (!python)
		return -1;
	for (int i = 0; i < 64; i++)
		gm_python_walk(python, depth, &walk);
	begin = now_ns();
	for (int i = 0; i < times; i++)
		gm_python_walk(python, depth, &walk);
	*ret_frames = walk.frames;
	return (now_ns() - begin) / times;
}
