/*
 * debugger.c - recognise compute-sanitizer and cuda-gdb by their traces in the process (see real.h).
 *
 * With CUDA 13.0 compute-sanitizer preloads libsanitizer-collection.so and sets
 * NV_SANITIZER_INJECTION_PORT_RANGE_END; under cuda-gdb libcuda loads libcudadebugger.so.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/driver/real.h"

static const struct { const char *object, *name; } known[] = {
	{ "libsanitizer-collection.so", "compute-sanitizer" },
	{ "libsanitizer-public.so", "compute-sanitizer" },
	{ "libcudadebugger.so", "cuda-gdb" },
};

static int see_object(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;
	const char **found = arg;

	(void)bytes;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(name, known[i].object, strlen(known[i].object)))
			*found = known[i].name;
	return *found != NULL;
}

/* Read the file @path, as far as it fits. */
static bool read_text(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, bytes - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Does cuda-gdb trace this process? libcudadebugger.so may not be there yet, because cuInit loads it. */
static bool traced_by_cuda_gdb(void)
{
	char text[2048], path[64] = "/proc/", *at;
	size_t length = strlen(path);

	if (!read_text("/proc/self/status", text, sizeof(text)))
		return false;
	at = strstr(text, "TracerPid:\t");
	if (!at)
		return false;
	for (at += strlen("TracerPid:\t"); *at >= '0' && *at <= '9' && length < 32; at++)
		path[length++] = *at;
	strcpy(path + length, "/comm");
	return read_text(path, text, sizeof(text)) && !strncmp(text, "cuda-gdb", 8);
}

const char *gm_debugger(void)
{
	const char *found = NULL;

	dl_iterate_phdr(see_object, &found);
	if (!found && secure_getenv("NV_SANITIZER_INJECTION_PORT_RANGE_END"))
		found = "compute-sanitizer";
	if (!found && traced_by_cuda_gdb())
		found = "cuda-gdb";
	return found;
}
