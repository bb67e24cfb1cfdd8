/*
 * neighbours.c - ask other processes of this user to give back cached memory: see neighbours.h.
 *
 * Their journals lie beside ours and show how much memory is idle on which device. A process with idle
 * memory gets the command that gpumem ctl would send (recorder/journal/control.h); its helper thread does
 * it. A helper thread asks no other process, so processes cannot ask each other in a circle.
 *
 * The owner of a journal may truncate the file at any time, and SIGBUS would then kill a process that reads
 * a mapping of it. So this file reads and writes journals by system calls only. It maps the header only for
 * the futex: the kernel changes that word, and the call fails if the page is gone. A command without an
 * answer in time stays in the journal, because taking it back needs a compare-and-swap in the mapping. The
 * next gpumem ctl takes it back, and emptying a cache later does no harm.
 *
 * The files are opened in a descriptor table of our own (own_files.c). Lock: asking, so that one thread of
 * this process asks at a time. No malloc.
 */
#define _GNU_SOURCE
#include "preload/triggers/neighbours.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "preload/process/state.h"
#include "preload/triggers/trigger.h"
#include "recorder/journal/directory.h"
#include "recorder/journal/identity.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/sys.h"
#include "recorder/read/copy.h"

#define ASK_NS UINT64_C(1000000000)
#define LOOK_NS 1000000
#define SLICE_NS UINT64_C(10000000)	/* the most that one round of the wait counts (gm_passed_ns) */
#define ASKED_MOST 16u
#define ENTRIES_MOST 1024u		/* read of one directory */
#define OPENED_MOST 256u

#define CONTROL(member) (offsetof(struct gm_header, control) + offsetof(struct gm_control, member))

struct neighbour { int fd; uint32_t device, turn; uint64_t idle; };

static struct gm_lock asking;
static _Atomic(uint32_t) helped;	/* how often asking brought memory */
/* State of one round of asking. Static, because it is too large for the stack of a thread of the program. Lock:
 * asking. */
static struct round {
	uint8_t uuid[16];
	char boot_id[40];
	uint64_t missing, idle, given;
	int dirfd;
	unsigned int opened, count;
	struct neighbour asked[ASKED_MOST];
	struct gm_header header;
	struct gm_domain device;
} around;

/* ---- find processes with idle memory ---- */

static bool get(int fd, void *to, size_t bytes, uint64_t at)
{
	return gm_file_get(fd, to, bytes, at) == (ssize_t)bytes;
}

/* Is this the header of the journal of a living process, of this boot and format, that can answer? */
static bool is_alive(const struct round *round, const struct gm_header *header)
{
	return header->magic == GM_MAGIC && header->version == GM_FORMAT_VERSION && header->boot_id[0] &&
	       !strncmp(header->boot_id, round->boot_id, sizeof(round->boot_id)) &&
	       header->life == GM_LIFE_RUNNING && header->has_helper && gm_header_sign(header) > 0 &&
	       header->control.version == GM_CONTROL_VERSION;
}

/* Return the bytes of the segments that are wholly free. */
static uint64_t idle_in(const struct gm_domain *domain)
{
	int64_t idle = domain->stats.stat[GM_STAT_RESERVED_BYTES][GM_POOL_ALL].current -
		       domain->stats.stat[GM_STAT_ACTIVE_BYTES][GM_POOL_ALL].current -
		       domain->stats.stat[GM_STAT_INACTIVE_SPLIT_BYTES][GM_POOL_ALL].current;

	return idle > 0 ? (uint64_t)idle : 0;
}

/* Find the idle memory of our device in journal @fd, whose header is in @round. Returns false if there is none. */
static bool find_idle(struct round *round, int fd, struct neighbour *ret)
{
	const struct gm_region *region = &round->header.regions[GM_REGION_DOMAINS];

	for (uint32_t i = 0; i < GM_MAX_DEVICES && (i + 1) * sizeof(round->device) <= region->used; i++) {
		if (!get(fd, &round->device, sizeof(round->device), region->offset + i * sizeof(round->device)))
			return false;
		if (!round->device.present || memcmp(round->device.uuid, round->uuid, sizeof(round->uuid)))
			continue;
		*ret = (struct neighbour){ .fd = fd, .device = i, .idle = idle_in(&round->device) };
		return ret->idle > 0;
	}
	return false;
}

static bool look_at_journal(void *arg, const char *name)
{
	struct round *round = arg;
	struct neighbour one;
	const char *end = strstr(name, ".journal");
	struct stat st;
	int fd;

	if (!end || end[sizeof(".journal") - 1])
		return true;
	if (round->count == ASKED_MOST || round->opened++ == OPENED_MOST)
		return false;
	fd = gm_file_open(round->dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return true;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    get(fd, &round->header, sizeof(round->header), 0) && round->header.pid != getpid() &&
	    is_alive(round, &round->header) && find_idle(round, fd, &one)) {
		round->idle += one.idle;
		round->asked[round->count++] = one;
	} else {
		close(fd);
	}
	return true;
}

static void look_in(struct round *round, int parent, const char *name)
{
	round->dirfd = gm_directory_own(parent, name);
	if (round->dirfd < 0)
		return;
	gm_directory_each(round->dirfd, ENTRIES_MOST, look_at_journal, round);
	close(round->dirfd);
}

struct place { struct round *round; int fd; };

static bool look_at_entry(void *arg, const char *name)
{
	struct place *place = arg, room = { place->round, -1 };
	struct stat st;

	if (gm_directory_is_named(name, geteuid()))
		look_in(place->round, place->fd, name);
	if (strncmp(name, GM_RUN_ROOM, strlen(GM_RUN_ROOM)))
		return true;
	room.fd = gm_file_open(place->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (room.fd < 0)
		return true;
	if (!fstat(room.fd, &st) && st.st_uid == geteuid())
		gm_directory_each(room.fd, ENTRIES_MOST, look_at_entry, &room);
	close(room.fd);
	return true;
}

/* Cut the last component off @path. */
static void cut(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
}

/* Look at every journal in the directory above ours. If our directory is in the room of a gpumem run, begin above
 * the room. */
static void look_around(struct round *round)
{
	struct place place = { round, -1 };
	char path[GM_PATH_BYTES];
	const char *last;

	memcpy(path, gm_state.journal, sizeof(path));
	cut(path);
	cut(path);
	last = strrchr(path, '/');
	if (last && !strncmp(last + 1, GM_RUN_ROOM, strlen(GM_RUN_ROOM)))
		cut(path);
	place.fd = gm_file_open(AT_FDCWD, *path ? path : "/", O_RDONLY | O_DIRECTORY, 0);
	if (place.fd < 0)
		return;
	gm_directory_each(place.fd, ENTRIES_MOST, look_at_entry, &place);
	close(place.fd);
}

/* ---- ask them ---- */

static bool put(int fd, uint32_t word, uint64_t at)
{
	return pwrite(fd, &word, sizeof(word), (off_t)at) == sizeof(word);
}

/* Wake the helper thread of journal @fd, as gm_trigger_ask wakes our own. */
static bool wake(int fd)
{
	struct gm_header *header = gm_sys.map(NULL, GM_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	long woken;

	if (header == MAP_FAILED)
		return false;
	woken = syscall(SYS_futex, &header->request, FUTEX_WAKE_OP, INT32_MAX, NULL, &header->request,
			FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0));
	gm_sys.unmap(header, GM_HEADER_BYTES);
	return woken >= 0;
}

/* Send the command. Returns false if a process is asking @one already, or asked it and got no answer. */
static bool ask(struct neighbour *one)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = CONTROL(version),
			      .l_len = sizeof(struct gm_control) };
	uint32_t turn;

	if (fcntl(one->fd, F_OFD_SETLK, &lock) || !get(one->fd, &turn, sizeof(turn), CONTROL(turn)) ||
	    ((turn & 3u) != GM_CONTROL_IDLE && (turn & 3u) != GM_CONTROL_ANSWERED))
		return false;
	one->turn = ((turn & ~3u) + GM_CONTROL_TURNS) | GM_CONTROL_ASKED;
	return put(one->fd, GM_CONTROL_EMPTY_CACHE, CONTROL(command)) &&
	       put(one->fd, one->device, CONTROL(device)) && put(one->fd, one->turn, CONTROL(turn)) &&
	       wake(one->fd);
}

/* Has @one answered, or will it never answer this command? Then stop waiting for it. */
static bool has_answered(struct round *round, const struct neighbour *one)
{
	uint32_t turn = 0;
	uint64_t bytes = 0;

	if (!get(one->fd, &turn, sizeof(turn), CONTROL(turn)) || (turn & ~3u) != (one->turn & ~3u))
		return true;
	if ((turn & 3u) != GM_CONTROL_ANSWERED)
		return false;
	get(one->fd, &bytes, sizeof(bytes), CONTROL(devices[0].given_back) +
					    one->device * sizeof(struct gm_control_device));
	round->given += bytes;
	return true;
}

static void let_go(struct round *round, unsigned int i)
{
	close(round->asked[i].fd);
	round->asked[i] = round->asked[--round->count];
}

/* Ask and wait. Runs in a descriptor table of its own. */
static void go_round(void *arg)
{
	struct round *round = arg;
	uint64_t at = gm_now_ns(), waited = 0;

	gm_identity_boot(round->boot_id);
	look_around(round);
	for (unsigned int i = round->count; i-- > 0;)
		if (round->idle < round->missing || !ask(&round->asked[i]))
			let_go(round, i);
	while (round->count && (waited += gm_passed_ns(&at, SLICE_NS)) < ASK_NS) {
		for (unsigned int i = round->count; i-- > 0;)
			if (has_answered(round, &round->asked[i]))
				let_go(round, i);
		if (round->count)
			gm_nap(LOOK_NS);
	}
	while (round->count)
		let_go(round, 0);
}

bool gm_neighbours_ask(uint8_t domain, uint64_t missing)
{
	static const uint8_t none[16];
	const struct gm_header *header = gm_recorder_header();
	const uint8_t *uuid;
	uint32_t before = helped;
	bool given;

	if (!gm_state.journal[0] || !header || gm_recorder_is_lost() || domain >= GM_MAX_DEVICES)
		return false;
	uuid = ((const struct gm_domain *)(const void *)((const char *)header +
		header->regions[GM_REGION_DOMAINS].offset))[domain].uuid;
	if (!memcmp(uuid, none, sizeof(none)) || !gm_lock_within(&asking, ASK_NS))
		return false;
	if (helped == before) {		/* else another thread has just got memory */
		memset(&around, 0, offsetof(struct round, asked));
		memcpy(around.uuid, uuid, sizeof(around.uuid));
		around.missing = missing;
		gm_with_own_files(go_round, &around);
		helped += around.given > 0;
	}
	given = helped != before;
	gm_unlock(&asking);
	return given;
}
