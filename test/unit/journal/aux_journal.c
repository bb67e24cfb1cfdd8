/*
 * aux_journal.c - a directory of the test's own, and a recorder that lays its journal there.
 */
#define _GNU_SOURCE
#include "test/unit/journal/aux_journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"

char aux_directory[256];
struct gm_recorder_report aux_report;
unsigned int aux_calls, aux_fail_at;
bool aux_fail_on;
static struct gm_sys real;

void aux_directory_make(void)
{
	snprintf(aux_directory, sizeof(aux_directory), "%s/gpumem-test-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(aux_directory)) {
		perror(aux_directory);
		exit(1);
	}
	gm_sys.shm = aux_directory;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	(void)type;
	(void)walk;
	return remove(path);
}

void aux_directory_remove(void)
{
	nftw(aux_directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int aux_try_start(uint64_t history, const char *place)
{
	static const struct gm_recorder_setting settings[] = {
		{ "allocator", "native", "default" }, { "history", "many", "GPUMEM_HISTORY" },
	};
	struct gm_recorder_config config = {
		.place = place, .history_events = history, .output = "/nowhere/gpumem.%p.json",
		.version = "0.0-test", .rank = 3, .settings = settings, .settings_count = 2,
	};

	return gm_recorder_start(&config, &aux_report);
}

void aux_publish_modules(uint64_t first, uint64_t last)
{
	for (uint64_t i = first; i <= last; i++)
		AUX_MUST(gm_publish_module(i << 32, i << 32, (i << 32) + 4096, "/lib/x.so", NULL, 0) == i);
}

void aux_start(uint64_t history)
{
	int r = aux_try_start(history, "");

	if (r < 0)
		ck_abort_msg("no journal: %s (%s)", strerror(-r), aux_report.note);
	aux_publish_modules(1, AUX_MODULES);
}

/* Is this the call that shall fail? */
static bool failing(int error)
{
	aux_calls++;
	if (!aux_fail_at || (aux_fail_on ? aux_calls < aux_fail_at : aux_calls != aux_fail_at))
		return false;
	errno = error;
	return true;
}

static int open_file(int dirfd, const char *path, int flags, mode_t mode)
{
	return failing(EACCES) ? -1 : real.open_file(dirfd, path, flags, mode);
}
static int make_memfd(const char *name, unsigned int flags)
{
	return failing(ENOSYS) ? -1 : real.memfd(name, flags);
}
static int cut(int fd, off_t bytes)
{
	return failing(EFBIG) ? -1 : real.truncate(fd, bytes);
}
static int allocate(int fd, int mode, off_t offset, off_t bytes)
{
	return failing(ENOSPC) ? -1 : real.allocate(fd, mode, offset, bytes);
}
static int space(int fd, struct statvfs *ret)
{
	return failing(EIO) ? -1 : real.space(fd, ret);
}
static int limit(int resource, struct rlimit *ret)
{
	return failing(EINVAL) ? -1 : real.limit(resource, ret);
}
static void *map(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return failing(ENOMEM) ? MAP_FAILED : real.map(addr, bytes, prot, flags, fd, offset);
}
static int unmap(void *addr, size_t bytes)
{
	return real.unmap(addr, bytes);
}
static int protect(void *addr, size_t bytes, int prot)
{
	return failing(ENOMEM) ? -1 : real.protect(addr, bytes, prot);
}
static int advise(void *addr, size_t bytes, int advice)
{
	return failing(advice == 23 ? EFAULT : ENOMEM) ? -1 : real.advise(addr, bytes, advice);
}

void aux_sys_wrap(void)
{
	real = gm_sys;
	gm_sys.open_file = open_file;
	gm_sys.memfd = make_memfd;
	gm_sys.truncate = cut;
	gm_sys.allocate = allocate;
	gm_sys.space = space;
	gm_sys.limit = limit;
	gm_sys.map = map;
	gm_sys.unmap = unmap;
	gm_sys.protect = protect;
	gm_sys.advise = advise;
}

unsigned int aux_entries(const char *directory, const char *end)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	unsigned int count = 0;

	if (!dir)
		return 0;
	while ((entry = readdir(dir))) {
		size_t n = strlen(entry->d_name), m = strlen(end);

		count += n > m && !strcmp(entry->d_name + n - m, end);
	}
	closedir(dir);
	return count;
}

void aux_put_file(const char *name, const char *content)
{
	char path[512], *slash;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", aux_directory, name);
	for (slash = strchr(path + strlen(aux_directory) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs(content, file);
	fclose(file);
}

unsigned int aux_descriptors(void)
{
	unsigned int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

struct gm_alloc aux_alloc(uint8_t domain, uint64_t address, uint64_t size)
{
	return (struct gm_alloc){
		.address = address, .size = size, .requested = size, .context = 1, .module = 7,
		.domain = domain,
		.kind = domain == GM_DOMAIN_HOST ? GM_KIND_HOST : GM_KIND_DEVICE,
	};
}

uint32_t aux_record(uint8_t domain, uint64_t address, uint64_t size)
{
	struct gm_alloc alloc = aux_alloc(domain, address, size);
	uint32_t block = 0;

	AUX_MUST(gm_record_alloc(0, &alloc, &block) == 0);
	AUX_MUST(block != 0);
	return block;
}

void aux_sound(void)
{
	ck_assert_int_eq(gm_recorder_check(), 0);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}

static void complain(void *arg, const char *what, uint64_t where)
{
	static unsigned int said;

	(void)arg;
	if (said++ < 10)
		printf("# violation: %s at %#llx\n", what, (unsigned long long)where);
	fflush(stdout);
}

void aux_copy(struct gm_copy *ret_copy)
{
	ck_assert_int_eq(gm_copy_from_process(ret_copy), 0);
	ck_assert(ret_copy->consistent);
	ck_assert_int_eq(gm_copy_resolve(ret_copy, UINT64_MAX), 0);
	ck_assert_int_eq(gm_copy_check(ret_copy, complain, NULL), 0);
	ck_assert_uint_eq(ret_copy->damage, 0);
}

size_t aux_count_events(int action)
{
	struct gm_copy copy;
	size_t count = 0;

	aux_copy(&copy);
	for (size_t i = 0; i < copy.event_count; i++)
		count += action == GM_ACTION_NONE || copy.events[i]->action == action;
	gm_copy_free(&copy);
	return count;
}

size_t aux_count_stacks(uint32_t stack)
{
	struct gm_copy copy;
	size_t count = 0;

	aux_copy(&copy);
	for (size_t i = 0; i < copy.event_count; i++)
		count += copy.events[i]->stack == stack;
	gm_copy_free(&copy);
	return count;
}

unsigned long aux_effort(unsigned long usual)
{
	const char *times = getenv("GM_STRESS");

	return times && atof(times) > 0 ? (unsigned long)((double)usual * atof(times)) + 1 : usual;
}
