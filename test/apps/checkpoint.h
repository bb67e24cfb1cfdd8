/* checkpoint.h - lines of output and checkpoints, for the CUDA programs (app.h) and for programs that use only the
 * driver (drv.h). C and C++.
 *
 * Checkpoint N, counted from 1, with all work done:
 *   - a line "checkpoint N: what";
 *   - on the fake device a line "checkpoint N device D kind K bytes B" for each device and kind: the bytes that the
 *     driver itself knows to be live;
 *   - with CHECKPOINT_DIR set, DIR/[role-]N.driver: cudaMemGetInfo of each device, which is the best account that a
 *     real GPU gives, and a line "what ...";
 *   - and with gpumem_snapshot() in the process, DIR/[role-]N.json: the recorder's account.
 *
 * Thread context: one thread, while the other threads stand still.
 */
#ifndef TEST_APPS_CHECKPOINT_H
#define TEST_APPS_CHECKPOINT_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/fakecuda.h"

/* Print a line on stderr and end the program, because nothing after the error would mean anything. */
#define DIE(...)                                                                               \
	do {                                                                                   \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                \
		fprintf(stderr, __VA_ARGS__);                                                  \
		fputc('\n', stderr);                                                           \
		exit(1);                                                                       \
	} while (0)

/* Print a line and flush it at once, so that the output of a killed program and of its children is complete and in
 * order. */
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

/* Print "what: ok", or end the program. */
static inline void expect(bool condition, const char *what)
{
	if (!condition) {
		fprintf(stderr, "%s: wrong\n", what);
		exit(1);
	}
	say("%s: ok", what);
}

/* Return a control function of the fake driver; NULL on a real driver. Does not load the driver. */
static inline void *fake_control(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	return driver ? dlsym(driver, name) : NULL;
}
#define FAKE(name) ((__typeof__(&name))fake_control(#name))

/* How a program gives a checkpoint what it needs. Both functions end the program on an error. */
struct checkpoint_driver {
	void (*synchronize)(int device);
	void (*mem_info)(int device, size_t *ret_free, size_t *ret_total);
};

static inline void checkpoint_files(const struct checkpoint_driver *driver, const char *stem,
				    int devices, const char *what)
{
	typedef int snapshot_fn(const char *path);
	snapshot_fn *snapshot = (snapshot_fn *)dlsym(RTLD_DEFAULT, "gpumem_snapshot");
	char path[4200];
	FILE *file;
	int failed;

	snprintf(path, sizeof(path), "%s.driver", stem);
	file = fopen(path, "we");
	if (!file)
		DIE("cannot write %s", path);
	for (int device = 0; device < devices; device++) {
		size_t free_bytes = 0, total_bytes = 0;

		driver->mem_info(device, &free_bytes, &total_bytes);
		fprintf(file, "device %d free %zu total %zu\n", device, free_bytes, total_bytes);
	}
	fprintf(file, "what %s\n", what);
	fclose(file);
	snprintf(path, sizeof(path), "%s.json", stem);
	failed = snapshot ? snapshot(path) : 0;
	if (failed)
		DIE("gpumem_snapshot(%s): %d", path, failed);
}

/* Make a checkpoint. @role: "", or the role of this process beside the main one. */
static inline void checkpoint_with(const struct checkpoint_driver *driver, const char *role,
				   int devices, const char *what)
{
	static const char *const kinds[FAKECUDA_KINDS] = {
		"device", "managed", "array", "host", "vmm", "pool", "ipc", "graph", "external",
	};
	static int number;
	const char *dir = getenv("CHECKPOINT_DIR");
	__typeof__(&fakecuda_live_bytes) live_bytes;
	char stem[4096];

	for (int device = 0; device < devices; device++)
		driver->synchronize(device);
	number++;
	say("checkpoint %d: %s", number, what);
	live_bytes = FAKE(fakecuda_live_bytes);
	for (int device = 0; live_bytes && device < devices; device++) {
		for (int kind = 0; kind < FAKECUDA_KINDS; kind++)
			say("checkpoint %d device %d kind %s bytes %llu", number, device,
			    kinds[kind],
			    (unsigned long long)live_bytes(device, (enum fakecuda_kind)kind));
	}
	if (dir) {
		snprintf(stem, sizeof(stem), "%s/%s%s%d", dir, role, *role ? "-" : "", number);
		checkpoint_files(driver, stem, devices, what);
	}
}

#endif
