/*
 * symbols.c - name native frames by the ELF symbol tables of their modules: see symbols.h.
 *
 * Owns the job under way: a batch of frames, sorted by module and address, and its progress. The file of
 * a module is opened again in every slice, because the host may close descriptors, or reuse their numbers, at
 * any time.
 */
#define _GNU_SOURCE
#include "recorder/modules/symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "recorder/modules/elf_file.h"
#include "recorder/read/copy_internal.h"
#include "recorder/journal/probe.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"

#define BATCH 65536u			/* frames */
#define NAME_BYTES (GM_STRING_MAX + 1u)
#define OFFSET_BITS 48			/* of an offset; the module's number is above */
#define LOOK_AT_CLOCK 32u		/* names between two readings of the clock */

static struct job {
	uint32_t taken;			/* frames of the journal that are done or in the batch */
	void *memory;			/* holds everything below; NULL: no batch */
	size_t memory_bytes;
	struct gm_elf_match *matches;
	char *text;			/* NAME_BYTES */
	size_t count;
	size_t group, group_end;	/* the matches of the module under way */
	size_t named;			/* how many of them are named, once the pass is complete */
	bool scanned;
	struct gm_elf_scan scan;
	struct gm_elf_file file;		/* with which the scan began; only its identity is used */
} job;

static _Atomic(uint32_t) busy;		/* 1: a thread is at work */

static const struct gm_frame *frame_at(uint32_t id)
{
	return (const void *)(gm_rec.base + gm_region(GM_REGION_FRAMES)->offset +
			      id * sizeof(struct gm_frame));
}

static const struct gm_module *module_at(uint16_t id)
{
	return (const void *)(gm_rec.base + gm_region(GM_REGION_MODULES)->offset +
			      id * sizeof(struct gm_module));
}

static uint32_t frames(void)
{
	return (uint32_t)(gm_get_acquire(&gm_region(GM_REGION_FRAMES)->used) /
			  sizeof(struct gm_frame));
}

/* Is there room for names of native frames? Some room is kept for paths, Python's names and settings, because nobody
 * can add those later. */
static bool room_for_names(void)
{
	const struct gm_region *strings = gm_region(GM_REGION_STRINGS);

	return gm_get(&strings->used) < strings->capacity / 4 * 3;
}

static void end_batch(void)
{
	if (job.memory)
		gm_sys.unmap(job.memory, job.memory_bytes);
	job.memory = NULL;
	job.count = job.group = job.group_end = 0;
}

/* Can a name be found for this frame? It must be native, in a module, and without a name. */
static bool is_wanted(const struct gm_frame *frame)
{
	return frame->module && frame->module < gm_get_acquire(&gm_region(GM_REGION_MODULES)->used) /
						sizeof(struct gm_module) &&
	       !(frame->flags & 1) && !__atomic_load_n(&frame->name, __ATOMIC_ACQUIRE) &&
	       frame->offset && frame->offset < UINT64_C(1) << OFFSET_BITS;
}

static size_t collect(struct gm_pair *pairs, uint32_t from, uint32_t to)
{
	size_t count = 0;

	for (uint32_t id = from; id < to; id++) {
		const struct gm_frame *frame = frame_at(id);

		/* Look up the byte before the return address, because the calling function may end with the call. */
		if (is_wanted(frame))
			pairs[count++] = (struct gm_pair){
				(uint64_t)frame->module << OFFSET_BITS | (frame->offset - 1), id };
	}
	return count;
}

/* Begin a batch with the next frames of the journal. Returns false when there are none, or no memory. */
static bool begin_batch(void)
{
	uint32_t from = job.taken ? job.taken : 1, to = frames();
	size_t n, at = 0, pairs_at, scratch_at, matches_at, window_at;
	struct gm_pair *pairs;

	if (from >= to)
		return false;
	to = to - from < BATCH ? to : from + BATCH;
	n = to - from;
	matches_at = at, at += n * sizeof(struct gm_elf_match);
	window_at = at, at += GM_ELF_WINDOW * sizeof(Elf64_Sym);
	pairs_at = at, at += n * sizeof(struct gm_pair);
	scratch_at = at, at += n * sizeof(struct gm_pair);
	at += NAME_BYTES;
	job.memory = gm_map_private(at);
	if (!job.memory)
		return false;
	job.memory_bytes = at;
	job.taken = to;
	job.matches = (void *)((char *)job.memory + matches_at);
	job.scan.window = (void *)((char *)job.memory + window_at);
	job.text = (char *)job.memory + at - NAME_BYTES;
	pairs = (void *)((char *)job.memory + pairs_at);
	job.count = collect(pairs, from, to);
	pairs = gm_pairs_sort(pairs, (void *)((char *)job.memory + scratch_at), job.count);
	for (size_t i = 0; i < job.count; i++) {
		job.matches[i].address = pairs[i].key & ((UINT64_C(1) << OFFSET_BITS) - 1);
		job.matches[i].user16 = (uint16_t)(pairs[i].key >> OFFSET_BITS);
		job.matches[i].user32 = (uint32_t)pairs[i].value;
	}
	return true;
}

/* Is this the file that was loaded? For modules without a build id: compare the ELF header (which has the place of the
 * section table) and the program headers with those in memory. */
static bool is_loaded_from(const struct gm_module *module, const struct gm_elf_file *elf)
{
	size_t bytes = elf->header.e_phnum * sizeof(Elf64_Phdr);
	uint8_t disk[64 * sizeof(Elf64_Phdr)], memory[sizeof(disk)];
	Elf64_Ehdr header;

	return !gm_get_acquire(&module->unload_tsc) && bytes && bytes <= sizeof(disk) &&
	       elf->header.e_phoff < module->end - module->start &&
	       gm_probe_copy(&header, (uintptr_t)module->start, sizeof(header)) ==
		       sizeof(header) &&
	       !memcmp(&header, &elf->header, sizeof(header)) &&
	       gm_probe_copy(memory, (uintptr_t)(module->start + elf->header.e_phoff), bytes) ==
		       bytes &&
	       gm_elf_file_read(elf, disk, elf->header.e_phoff, bytes) &&
	       !memcmp(disk, memory, bytes);
}

static bool is_file_of(const struct gm_module *module, const struct gm_elf_file *elf)
{
	if (!module->build_id_bytes)
		return !elf->build_id_bytes && is_loaded_from(module, elf);
	return module->build_id_bytes == elf->build_id_bytes &&
	       !memcmp(module->build_id, elf->build_id, elf->build_id_bytes);
}

/* Close the descriptor of @elf, unless the host has closed it and uses its number for another file. */
static void close_file(struct gm_elf_file *elf)
{
	if (gm_elf_file_is(elf, elf->fd))
		close(elf->fd);
	gm_elf_file_end(elf);
}

/* Open the file of the module under way. Returns 0; -errno when there is no file to read. */
static int open_file(struct gm_elf_file *ret_elf)
{
	const struct gm_module *module = module_at(job.matches[job.group].user16);
	const struct gm_string *path;
	struct gm_fd_guard guard;
	int fd, r;

	if (!module->path)
		return -ENOENT;
	path = (const void *)(gm_rec.base + gm_region(GM_REGION_STRINGS)->offset + module->path);
	if (path->text[0] != '/')
		return -ENOENT;
	gm_fd_guard_begin(&guard);
	/* Do not wait if a pipe or a device lies there now. Check just before the call, so that after a crash a
	 * thread opens at most the one file that it was about to open. */
	fd = gm_elf_files_stopped() ? -ECANCELED :
	     gm_file_open(AT_FDCWD, path->text, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
	gm_fd_guard_end(&guard);
	if (fd < 0)
		return fd;
	r = gm_elf_file_begin(ret_elf, fd);
	if (r) {
		close(fd);
		return r;
	}
	if (!is_file_of(module, ret_elf)) {
		close_file(ret_elf);
		return -ESTALE;
	}
	return 0;
}

/* Give the frames of the module under way the names that were found. Returns false when time ran out before the
 * end. */
static bool name_frames(const struct gm_elf_file *elf, uint64_t until_ns)
{
	uint32_t last = 0, id = GM_NONE;

	while (job.named < job.group_end) {
		const struct gm_elf_match *match = &job.matches[job.named++];
		uint32_t name = gm_elf_match_name(match);

		if (name && name != last) {
			size_t length = room_for_names() ?
				gm_elf_name(elf, name, job.text, NAME_BYTES) : 0;

			id = length ? gm_intern_string(job.text, (uint32_t)length) : GM_NONE;
			last = name;
		}
		if (name && id)
			gm_frame_name(match->user32, id, 0, 0);
		if ((job.named - job.group) % LOOK_AT_CLOCK == 0 && gm_now_ns() >= until_ns)
			return false;
	}
	return true;
}

/* Continue with the module under way. Returns false when time ran out before the end. */
static bool work_on_group(uint64_t until_ns)
{
	bool done = true;
	struct gm_elf_file elf;
	int r;

	if (open_file(&elf))
		return true;
	if (job.scan.next && !gm_elf_file_is(&job.file, elf.fd))
		goto out;		/* the file was replaced between two slices: give up */
	job.file = elf;
	r = job.scanned ? 1 : gm_elf_scan(&elf, &job.scan, until_ns);
	/* The host may have closed the descriptor and use its number for its own file. */
	if (r < 0 || !gm_elf_file_is(&elf, elf.fd))
		goto out;
	job.scanned = r == 1;
	done = job.scanned && name_frames(&elf, until_ns);
out:
	close_file(&elf);
	return done;
}

static void begin_group(void)
{
	job.group = job.group_end;
	while (job.group_end < job.count &&
	       job.matches[job.group_end].user16 == job.matches[job.group].user16)
		job.group_end++;
	job.named = job.group;
	job.scanned = false;
	job.scan.matches = job.matches + job.group;
	job.scan.count = job.group_end - job.group;
	job.scan.next = job.scan.work = 0;
}

static bool work(uint64_t until_ns)
{
	do {
		if (gm_elf_files_stopped() || (!job.memory && !begin_batch()))
			return false;
		if (job.group == job.group_end)
			begin_group();
		if (job.group == job.group_end) {
			end_batch();
			continue;
		}
		if (!work_on_group(until_ns))
			return true;
		job.group = job.group_end;
	} while (gm_now_ns() < until_ns);
	return job.memory || job.taken < frames();
}

bool gm_symbols_work(uint64_t limit_ns)
{
	uint64_t now = gm_now_ns();
	uint32_t idle = 0;
	int kept = errno;
	bool more;

	if (!gm_header_get() ||
	    !atomic_compare_exchange_strong_explicit(&busy, &idle, 1, memory_order_acquire,
						     memory_order_relaxed))
		return false;
	more = work(limit_ns < UINT64_MAX - now ? now + limit_ns : UINT64_MAX);
	gm_set_release(&busy, 0);
	errno = kept;
	return more;
}
