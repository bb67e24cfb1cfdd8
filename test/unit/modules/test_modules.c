/*
 * test_modules.c - numbers of modules and who called: against dladdr and dl_iterate_phdr, with
 * libraries that come and go, threads that meet at the same object, no /proc, code in no
 * module, and callers behind a library named as the CUDA runtime.
 */
#define _GNU_SOURCE
#include <check.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "recorder/modules/modules.h"
#include "recorder/modules/object.h"
#include "test/unit/unwind/helper.h"
#include "test/suite.h"

#define MODULES 256

/* A sink that keeps what it is told. */
static struct told {
	char path[PATH_MAX];
	struct gm_module_info info;
	int unloaded, again;
} told[MODULES];
static atomic_int published;
static int limit = MODULES;
static void (*while_publishing)(void);

static uint16_t publish(const struct gm_module_info *info)
{
	int id = ++published;

	if (while_publishing)
		while_publishing();
	if (id >= limit)
		return 0;
	snprintf(told[id].path, sizeof(told[id].path), "%s", info->path);
	told[id].info = *info;
	return (uint16_t)id;
}

static void unloaded(uint16_t module)
{
	told[module].unloaded++;
}

static void loaded_again(uint16_t module)
{
	told[module].again++;
}

static const struct gm_module_sink keep = { publish, unloaded, loaded_again };

/* One that keeps nothing, for more modules than there is room for. */
static uint16_t next_number(const struct gm_module_info *info)
{
	static atomic_int next = MODULES;

	(void)info;
	return (uint16_t)++next;
}

static const struct gm_module_sink numbers_alone = { .publish = next_number };

static void begin(void)
{
	gm_modules_init(&keep);
}

static void end(void)
{
	gm_object_force_maps(false);
}

struct expected {
	uintptr_t pc, base;
	uint8_t build_id[64];
	unsigned int build_id_bytes;
};

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct expected *want = arg;
	bool holds = false;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		holds |= p->p_type == PT_LOAD && want->pc >= info->dlpi_addr + p->p_vaddr &&
			 want->pc < info->dlpi_addr + p->p_vaddr + p->p_memsz;
	}
	if (!holds)
		return 0;
	want->base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const uint8_t *at = (const uint8_t *)(info->dlpi_addr + p->p_vaddr);
		const uint8_t *stop = at + p->p_memsz;

		while (p->p_type == PT_NOTE && at < stop) {
			const ElfW(Nhdr) *note = (const void *)at;

			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4) {
				want->build_id_bytes = note->n_descsz;
				memcpy(want->build_id, at + sizeof(*note) + 4, note->n_descsz);
			}
			at += sizeof(*note) + ((note->n_namesz + 3) & ~3u) +
			      ((note->n_descsz + 3) & ~3u);
		}
	}
	return 1;
}

static uint16_t expect_module(uintptr_t pc)
{
	struct expected want = { .pc = pc };
	uint64_t offset = 0;
	uint16_t id = gm_modules_lookup(pc, &offset);

	ck_assert_int_ne(id, 0);
	ck_assert_int_eq(dl_iterate_phdr(look, &want), 1);
	ck_assert_uint_eq(told[id].info.base, want.base);
	ck_assert_uint_eq(offset, pc - want.base);
	ck_assert_uint_ge(pc, told[id].info.start);
	ck_assert_uint_lt(pc, told[id].info.end);
	ck_assert_uint_eq(told[id].info.build_id_bytes, want.build_id_bytes);
	ck_assert_mem_eq(told[id].info.build_id, want.build_id, want.build_id_bytes);
	return id;
}

static const char *self_path(void)
{
	static char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	ck_assert(length > 0);
	path[length] = 0;
	return path;
}

static void check_identity(void)
{
	Dl_info info;
	uint16_t libc_id, self_id;

	self_id = expect_module((uintptr_t)check_identity);
	ck_assert_str_eq(told[self_id].path, self_path());
	libc_id = expect_module((uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
	ck_assert_int_ne(libc_id, self_id);
	ck_assert_ptr_nonnull(strstr(told[libc_id].path, "/libc.so.6"));
	ck_assert(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info));
	ck_assert_uint_gt(told[libc_id].info.build_id_bytes, 0);
	ck_assert_int_eq(expect_module((uintptr_t)dlsym(RTLD_DEFAULT, "__libc_start_main")),
			 libc_id);
	ck_assert_int_eq(expect_module((uintptr_t)self_path), self_id);
	ck_assert_int_eq(published, 2);
}

START_TEST(identity)
{
	gm_object_force_maps(_i == 1);
	check_identity();
}
END_TEST

static uintptr_t offset_of_mapping(uintptr_t address)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long first, last, offset, found = 1;
	char line[4200];

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &first, &last, &offset) == 3 &&
		    address >= first && address < last)
			found = offset;
	fclose(maps);
	return found;
}

/* One object whose first page is mapped twice is one module. */
START_TEST(first_page_mapped_twice)
{
	void *handle = helper_open("asker.so");
	uintptr_t code = (uintptr_t)helper_symbol(handle, "ask");
	uintptr_t data = (uintptr_t)helper_symbol(handle, "asker_data");

	gm_object_force_maps(_i == 1);
	ck_assert_uint_eq(offset_of_mapping(data), 0);
	ck_assert_int_eq(expect_module(data), expect_module(code));
}
END_TEST

START_TEST(nowhere)
{
	uint64_t offset = 0;
	uintptr_t places[] = { 0, 1, (uintptr_t)&offset, UINT64_C(1) << 63, UINTPTR_MAX };

	gm_object_force_maps(_i == 1);
	for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		ck_assert_int_eq(gm_modules_lookup(places[i], &offset), 0);
		ck_assert_uint_eq(offset, places[i]);
	}
	ck_assert_int_eq(published, 0);
}
END_TEST

START_TEST(relative_name)
{
	char *directory = strdup(helper_path("layout_a.so"));
	char wanted[PATH_MAX];
	uint16_t id;
	void *handle;

	ck_assert_int_eq(chdir(dirname(directory)), 0);
	handle = dlopen("./layout_a.so", RTLD_NOW);
	ck_assert_ptr_nonnull(handle);
	id = gm_modules_lookup((uintptr_t)helper_symbol(handle, "layout_call"), NULL);
	ck_assert_int_ne(id, 0);
	ck_assert_ptr_nonnull(realpath("layout_a.so", wanted));
	ck_assert_str_eq(told[id].path, wanted);
	free(directory);
}
END_TEST

/* ---- loading and unloading ------------------------------------------------------------- */

static uintptr_t load(const char *name, void **ret_handle)
{
	*ret_handle = helper_open(name);
	return (uintptr_t)helper_symbol(*ret_handle, "layout_call");
}

static void unload(void *handle)
{
	gm_modules_generation_bump();
	ck_assert_int_eq(dlclose(handle), 0);
	gm_modules_generation_bump();
}

START_TEST(another_module_at_the_same_address)
{
	uint16_t a, b, c;
	uintptr_t at, at_b;
	void *handle;

	gm_object_force_maps(_i == 1);
	at = load("layout_a.so", &handle);
	a = expect_module(at);
	ck_assert_ptr_nonnull(strstr(told[a].path, "/layout_a.so"));
	ck_assert_int_eq(expect_module(at), a);
	unload(handle);
	if (_i == 0)
		ck_assert_int_eq(told[a].unloaded, 1);
	at_b = load("layout_b.so", &handle);
	ck_assert_msg(at_b == at, "the loader chose another address");
	b = expect_module(at);
	ck_assert_int_ne(b, a);
	ck_assert_ptr_nonnull(strstr(told[b].path, "/layout_b.so"));
	ck_assert_int_eq(told[a].unloaded, 1);		/* at the latest now */
	unload(handle);
	ck_assert_uint_eq(load("layout_a.so", &handle), at);
	c = expect_module(at);
	ck_assert_int_eq(c, a);				/* the same again */
	ck_assert_int_eq(told[a].again, 1);
	ck_assert_int_eq(told[b].unloaded, 1);
	ck_assert_int_eq(published, 2);
	unload(handle);
	if (_i == 0)
		ck_assert_int_eq(told[a].unloaded, 2);
}
END_TEST

/* A bump that unloads nothing changes no number and tells nothing. */
START_TEST(nothing_unloaded)
{
	uint16_t id = expect_module((uintptr_t)expect_module);

	for (int i = 0; i < 10; i++)
		gm_modules_generation_bump();
	ck_assert_int_eq(expect_module((uintptr_t)expect_module), id);
	ck_assert_int_eq(told[id].unloaded, 0);
	ck_assert_int_eq(told[id].again, 0);
	ck_assert_int_eq(published, 1);
}
END_TEST

/* ---- threads, signals, forks ----------------------------------------------------------- */

enum { THREADS = 8, OBJECTS = 5 };
static pthread_barrier_t barrier;
static uintptr_t places[OBJECTS];
static uint16_t found[THREADS][OBJECTS];

/* Its number, asked for again where the lock's holder was off its processor for so long that there was none: on a
 * loaded machine that happens. Whoever never gets one is ended by the test's time limit. */
static uint16_t look_until_found(uintptr_t place)
{
	uint16_t id;

	while (!(id = gm_modules_lookup(place, NULL)))
		sched_yield();
	return id;
}

static void *meet(void *arg)
{
	uint16_t *mine = arg;

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < OBJECTS; i++)
		mine[i] = look_until_found(places[i]);
	return NULL;
}

static void slow(void)
{
	sched_yield();
}

START_TEST(threads_meet_at_the_same_objects)
{
	void *handle;

	gm_object_force_maps(_i == 1);
	while_publishing = slow;
	places[0] = (uintptr_t)meet;
	places[1] = (uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
	places[2] = load("layout_a.so", &handle);
	places[3] = load("layout_b.so", &handle);
	places[4] = (uintptr_t)helper_symbol(helper_open("asker.so"), "ask");
	for (int round = 0; round < 50; round++) {
		pthread_t threads[THREADS];
		int status;
		pid_t child = fork();	/* to meet them anew in each round */

		ck_assert_int_ge(child, 0);
		if (child) {
			ck_assert_int_eq(waitpid(child, &status, 0), child);
			ck_assert_int_eq(status, 0);
			continue;
		}
		pthread_barrier_init(&barrier, NULL, THREADS);
		for (int i = 0; i < THREADS; i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, meet, found[i]), 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		pthread_barrier_destroy(&barrier);
		ck_assert_int_eq(published, OBJECTS);
		for (int i = 0; i < OBJECTS; i++) {
			ck_assert_int_ne(found[0][i], 0);
			for (int j = 1; j < THREADS; j++)
				ck_assert_int_eq(found[j][i], found[0][i]);
		}
		_exit(0);
	}
}
END_TEST

static atomic_bool comings_over;
static atomic_int wrong;
static uintptr_t steady;
static uint16_t steady_id;

static void *look_steadily(void *arg)
{
	while (!comings_over)
		if (look_until_found(steady) != steady_id)
			wrong++;
	return arg;
}

START_TEST(look_ups_while_libraries_come_and_go)
{
	pthread_t threads[THREADS];
	uint64_t stop = helper_now_ns() + 1500000000u;
	int rounds = 0;

	steady = (uintptr_t)look_steadily;
	steady_id = gm_modules_lookup(steady, NULL);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, look_steadily, NULL), 0);
	/* Where no address comes twice (qemu), each round makes a module, for which there is room. */
	while (rounds < 10 || (helper_now_ns() < stop && rounds < 3000 && published < MODULES - 1)) {
		static const char *const names[] = { "layout_a.so", "layout_b.so" };
		void *handle;
		uintptr_t at = load(names[rounds % 2], &handle);
		uint16_t id = look_until_found(at);

		ck_assert_ptr_nonnull(strstr(told[id].path, names[rounds % 2]));
		unload(handle);
		rounds++;
	}
	comings_over = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("# %d libraries come and gone, %d modules\n", rounds, (int)published);
	ck_assert_int_eq(wrong, 0);
}
END_TEST

static volatile uint16_t id_in_handler = 99;

static void on_signal(int signo)
{
	(void)signo;
	id_in_handler = gm_modules_lookup((uintptr_t)meet, NULL);
}

static void raise_it(void)
{
	while_publishing = NULL;
	raise(SIGUSR1);
}

START_TEST(handler_interrupts_the_publication)
{
	signal(SIGUSR1, on_signal);
	while_publishing = raise_it;
	ck_assert_int_eq(gm_modules_lookup((uintptr_t)meet, NULL), 1);
	ck_assert_int_eq(id_in_handler, 0);
	raise(SIGUSR1);
	ck_assert_int_eq(id_in_handler, 1);
	ck_assert_int_eq(published, 1);
}
END_TEST

static void for_ever(void)
{
	if (published == 1)
		for (;;)
			pause();
}

/* A thread that never comes back from the sink keeps nobody waiting for ever. */
START_TEST(publication_that_never_ends)
{
	pthread_t stuck;
	uint64_t since;

	while_publishing = for_ever;
	places[0] = (uintptr_t)meet;
	pthread_barrier_init(&barrier, NULL, 2);
	ck_assert_int_eq(pthread_create(&stuck, NULL, meet, found[0]), 0);
	pthread_barrier_wait(&barrier);
	while (!published)
		sched_yield();
	ck_assert_int_eq(gm_modules_lookup((uintptr_t)meet, NULL), 0);
	since = helper_now_ns();
	for (int i = 0; i < 100; i++)		/* it is waited for once */
		ck_assert_int_eq(gm_modules_lookup((uintptr_t)expect_module, NULL), 0);
	ck_assert_uint_lt(helper_now_ns() - since, 5000000000u);	/* 10 s if each waited */
	ck_assert_int_eq(published, 1);
}
END_TEST

START_TEST(full)
{
	uintptr_t in_libc = (uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version");

	limit = 2;
	ck_assert_int_eq(expect_module((uintptr_t)meet), 1);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(gm_modules_lookup(in_libc, NULL), 0);
	ck_assert_int_eq(published, 2);		/* asked once */
}
END_TEST

START_TEST(errno_is_kept)
{
	gm_object_force_maps(_i == 1);
	errno = 4711;
	gm_modules_init(&keep);
	gm_modules_lookup((uintptr_t)meet, NULL);
	gm_modules_lookup(1, NULL);
	gm_modules_caller(__builtin_return_address(0), NULL);
	gm_modules_generation_bump();
	ck_assert_int_eq(errno, 4711);
}
END_TEST

/* In an empty root: no /proc/self/exe, and the name that execve was given must do. */
START_TEST(no_proc)
{
	char directory[] = "/tmp/gm_modules_XXXXXX";
	int status;
	pid_t child;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		uint16_t id;

		/* not root: a user namespace gives the right to change the root */
		if (chroot(directory) != 0 &&
		    (unshare(CLONE_NEWUSER) != 0 || chroot(directory) != 0))
			_exit(3);
		if (chdir("/") != 0)
			_exit(4);
		gm_modules_init(&keep);
		id = gm_modules_lookup((uintptr_t)meet, NULL);
		_exit(id == 1 && strstr(told[id].path, "test_modules") ? 0 : 5);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	rmdir(directory);
	ck_assert_msg(status == 0, "status %#x", (unsigned int)status);
}
END_TEST

/* ---- who called ------------------------------------------------------------------------ */

typedef void call_fn(void (*)(void *), void *);
typedef void ask_fn(call_fn *through, void (*callback)(void *), void *arg);

static uint16_t caller;
static uintptr_t caller_pc;

static __attribute__((noinline)) void hook(void *arg)	/* as a hook asks */
{
	(void)arg;
	caller = gm_modules_caller(__builtin_return_address(0), &caller_pc);
}

static __attribute__((noinline)) void nest(int depth, call_fn *through)
{
	if (depth == 0)
		through(hook, NULL);
	else
		nest(depth - 1, through);
	__asm__ volatile("" : : : "memory");
}

START_TEST(who_called)
{
	call_fn *pass_on;
	ask_fn *ask;
	uint16_t self, asker;
	void (*volatile direct)(void *) = hook;

	gm_object_force_maps(_i == 1);
	self = expect_module((uintptr_t)hook);
	*(void **)&pass_on = helper_symbol(helper_open("libcudart.so"), "pass_on");
	*(void **)&ask = helper_symbol(helper_open("asker.so"), "ask");
	asker = expect_module((uintptr_t)ask);
	direct(NULL);					/* no library between */
	ck_assert_int_eq(caller, self);
	pass_on(hook, NULL);				/* libcudart between */
	ck_assert_int_eq(caller, self);
	ck_assert_int_eq(gm_modules_lookup(caller_pc, NULL), self);
	nest(20, pass_on);
	ck_assert_int_eq(caller, self);
	ask(pass_on, hook, NULL);			/* asker asks libcudart */
	ck_assert_int_eq(caller, asker);
	ck_assert_int_eq(gm_modules_lookup(caller_pc, NULL), asker);
}
END_TEST

static __attribute__((noinline)) void through_libcudart(int depth, call_fn *pass_on)
{
	/* libcudart many times over, as its callbacks might: the program's frames lie between */
	if (depth == 0)
		pass_on(hook, NULL);
	else
		through_libcudart(depth - 1, pass_on);
	__asm__ volatile("" : : : "memory");
}

/* Code that a program made for itself calls: in no module, and said so; through libcudart too. */
START_TEST(caller_in_no_module)
{
#if defined(__aarch64__)
	/* stp x29, x30, [sp, #-16]!; mov x29, sp; mov x3, x0; mov x0, x1; mov x1, x2; blr x3; ldp x29, x30, [sp], #16; ret */
	static const uint32_t code[] = { 0xa9bf7bfd, 0x910003fd, 0xaa0003e3, 0xaa0103e0, 0xaa0203e1, 0xd63f0060,
		0xa8c17bfd, 0xd65f03c0 };
	const uintptr_t back = 24;		/* where the call returns to */
#else
	/* sub rsp, 8; mov rax, rdi; mov rdi, rsi; mov rsi, rdx; call rax; add rsp, 8; ret */
	static const uint8_t code[] = { 0x48, 0x83, 0xec, 8, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7,
		0x48, 0x89, 0xd6, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3 };
	const uintptr_t back = 15;
#endif
	uint8_t *area = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	void (*jit)(void *function, void *a, void *b);
	void *pass_on = helper_symbol(helper_open("libcudart.so"), "pass_on");

	ck_assert_ptr_ne(area, MAP_FAILED);
	memcpy(area, code, sizeof(code));
	__builtin___clear_cache((char *)area, (char *)area + sizeof(code));
	ck_assert_int_eq(mprotect(area, 4096, PROT_READ | PROT_EXEC), 0);
	*(void **)&jit = area;
	caller = 99;
	jit((void *)hook, NULL, NULL);
	ck_assert_int_eq(caller, 0);
	ck_assert_uint_eq(caller_pc, (uintptr_t)area + back);
	caller = 99;
	jit(pass_on, (void *)hook, NULL);
	ck_assert_int_eq(caller, 0);
	ck_assert_uint_eq(caller_pc, (uintptr_t)area + back);
	/* and a module beside it is still found */
	through_libcudart(3, (call_fn *)pass_on);
	ck_assert_int_eq(caller, gm_modules_lookup((uintptr_t)hook, NULL));
}
END_TEST

static void copy_to(const char *from, const char *path)
{
	static char bytes[1 << 20];
	FILE *file = fopen(from, "rb");
	size_t length;

	ck_assert_ptr_nonnull(file);
	length = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	file = fopen(path, "wb");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
	fclose(file);
}

/* A copy of the library @from, loaded and removed again. */
static void *open_copy(const char *from, const char *directory, int number)
{
	char path[PATH_MAX];
	void *handle;

	snprintf(path, sizeof(path), "%s/%d.so", directory, number);
	copy_to(from, path);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(handle != NULL, "%s", dlerror());
	unlink(path);
	return handle;
}

/* More objects than any program was seen to have: each gets a number of its own and keeps it. */
START_TEST(thousands_of_objects)
{
	enum { LIBRARIES = 2500 };
	static void *handles[LIBRARIES];
	static uint16_t numbers[LIBRARIES];
	static bool given[UINT16_MAX + 1];
	char directory[] = "/tmp/gpumem-test-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(directory));
	gm_modules_init(&numbers_alone);
	for (int i = 0; i < LIBRARIES; i++) {
		handles[i] = open_copy(helper_path("layout_a.so"), directory, i);
		numbers[i] = gm_modules_lookup((uintptr_t)helper_symbol(handles[i], "layout_call"),
					       NULL);
		ck_assert_uint_ne(numbers[i], 0);
		ck_assert(!given[numbers[i]]);
		given[numbers[i]] = true;
	}
	rmdir(directory);
	gm_modules_generation_bump();
	for (int i = 0; i < LIBRARIES; i++) {
		ck_assert_uint_eq(gm_modules_lookup((uintptr_t)helper_symbol(handles[i],
									     "layout_call"), NULL),
				  numbers[i]);
		dlclose(handles[i]);
	}
}
END_TEST

/* A program that loads ever new files, one after the other, as it makes code at run time: each has a
 * number as long as there are any, however many there were before. */
START_TEST(ever_new_files)
{
	enum { FILES = 17000, TOLD = 100 };
	char directory[] = "/tmp/gpumem-test-XXXXXX", first[64], path[64];
	unsigned int without = 0;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(first, sizeof(first), "%s/first.so", directory);
	copy_to(helper_path("layout_a.so"), first);
	for (int i = 0; i < FILES; i++) {
		uint16_t id;
		void *handle;

		if (i == TOLD)
			gm_modules_init(&numbers_alone);
		snprintf(path, sizeof(path), "%s/%d.so", directory, i);
		ck_assert_int_eq(link(first, path), 0);
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		ck_assert_msg(handle != NULL, "%s", dlerror());
		id = gm_modules_lookup((uintptr_t)helper_symbol(handle, "layout_call"), NULL);
		without += !id;
		ck_assert(i >= TOLD || !strcmp(told[id].path, path));
		unload(handle);
		unlink(path);
	}
	unlink(first);
	rmdir(directory);
	ck_assert_uint_eq(without, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("modules");
	TCase *tcase = tcase_create("modules");

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, begin, end);
	tcase_set_timeout(tcase, 60);
	tcase_add_single_loop_test(tcase, identity, 0, 2);
	tcase_add_single_loop_test(tcase, first_page_mapped_twice, 0, 2);
	tcase_add_single_loop_test(tcase, nowhere, 0, 2);
	tcase_add_single_test(tcase, relative_name);
	tcase_add_single_loop_test(tcase, another_module_at_the_same_address, 0, 2);
	tcase_add_single_test(tcase, nothing_unloaded);
	tcase_add_loop_test(tcase, threads_meet_at_the_same_objects, 0, 2);
	tcase_add_test(tcase, look_ups_while_libraries_come_and_go);
	tcase_add_test(tcase, handler_interrupts_the_publication);
	tcase_add_test(tcase, publication_that_never_ends);
	tcase_add_single_test(tcase, full);
	tcase_add_single_test(tcase, thousands_of_objects);
	tcase_add_single_test(tcase, ever_new_files);
	tcase_add_single_loop_test(tcase, errno_is_kept, 0, 2);
	tcase_add_test(tcase, no_proc);
	tcase_add_single_loop_test(tcase, who_called, 0, 2);
	tcase_add_single_test(tcase, caller_in_no_module);
	return run_suite(suite);
}
