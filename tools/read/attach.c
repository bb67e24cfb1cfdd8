/*
 * attach.c - the journal of a living process, found from outside: see attach.h.
 *
 * The kernel's list of the process's mappings names the journal, so we need not know the process's options or
 * namespaces. The process may be another user's, and hostile. So we open the very file that it has mapped, and in a way
 * that waits for nobody.
 */
#define _GNU_SOURCE
#include "tools/read/attach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "recorder/journal/format.h"
#include "recorder/read/copy.h"
#include "tools/read/places.h"
#include "tools/read/table.h"
#include "tools/show/show.h"

#define TRIES_MOST 64u			/* mappings of one process that are looked into */
#define NOBODY ((uid_t)-1)

/* The kernel makes the text of /proc/PID/maps while it is read, at 6 to 50 MB a second. A process may have 65,530
 * mappings, and names of 4,095 bytes. */
#define MAPS_MOST ((size_t)32 << 20)	/* bytes that are read of one process that was asked for */
#define MAPS_USUAL ((size_t)1 << 20)	/* bytes of each process, when all are searched */
#define MAPS_OF_USER MAPS_MOST		/* bytes beyond MAPS_USUAL, of all processes of a user together */

/* A line of /proc/PID/maps that may be a journal's. */
struct mapping { const char *range, *name; uint64_t device, inode; };

/* Is @fd the file that was mapped? Another file may have its name by now. overlayfs and btrfs show another device in
 * /proc than in stat(), so for them only the inode numbers are compared. */
static bool is_mapped(int fd, const struct mapping *of)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_ino != of->inode)
		return false;
	return st.st_dev == of->device ||
	       (!fstatfs(fd, &fs) &&
		(fs.f_type == OVERLAYFS_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC));
}

/* Open the file behind @look, an O_PATH descriptor, if it is a journal. Only a regular file is opened, because that has
 * no side effect. The open does not wait for a lease (fcntl F_SETLEASE). */
static int open_journal(int look, struct gm_attached *attached)
{
	char through[64];
	uint64_t magic = 0;
	struct stat st;
	int fd, writable, r;

	if (fstat(look, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	snprintf(through, sizeof(through), "/proc/self/fd/%d", look);
	fd = open(through, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	r = pread(fd, &magic, sizeof(magic), 0) < 0 ? -errno : magic == GM_MAGIC ? 0 : -ENOENT;
	writable = r ? -1 : open(through, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	attached->writable = writable >= 0;
	attached->fd = r ? -1 : writable >= 0 ? writable : fd;
	if (attached->fd != fd)
		close(fd);
	return r;
}

/* Open the mapped file itself, whatever its name is by now, if the kernel lets us. Otherwise open the file that has its
 * name in the process's view, if that is the mapped file. */
static int try_mapping(pid_t pid, const struct mapping *mapping, struct gm_attached *attached)
{
	char path[4096];
	int look, r;

	snprintf(path, sizeof(path), "/proc/%ld/map_files/%s", (long)pid, mapping->range);
	look = open(path, O_PATH | O_CLOEXEC);
	if (look < 0) {
		snprintf(path, sizeof(path), "/proc/%ld/root%s", (long)pid, mapping->name);
		look = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (look < 0)
			return -errno;
		if (!is_mapped(look, mapping)) {
			close(look);
			return -ENOENT;
		}
	}
	r = open_journal(look, attached);
	close(look);
	return r;
}

/* "BEGIN-END rw-s OFFSET MAJOR:MINOR INODE   NAME": may that be a journal? */
static bool read_line(char *line, struct mapping *ret)
{
	unsigned int major_number, minor_number;
	unsigned long long inode;
	char *name = strchr(line, '/');

	if (!name || !strstr(line, " rw-s ") ||
	    sscanf(line, "%*s %*s %*s %x:%x %llu", &major_number, &minor_number, &inode) != 3)
		return false;
	name[strcspn(name, "\n")] = '\0';
	if (!strstr(name, ".journal") && !strstr(name, "memfd:gpumem"))
		return false;
	line[strcspn(line, " ")] = '\0';
	*ret = (struct mapping){ line, name, makedev(major_number, minor_number), inode };
	return true;
}

FILE *gm_attach_proc(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	return fopen(path, "re");
}

/* Read the beginning of /proc/PID/@name into @ret; "": it cannot be read. */
static void read_proc(pid_t pid, const char *name, char *ret, size_t bytes)
{
	FILE *file = gm_attach_proc(pid, name);

	ret[file ? fread(ret, 1, bytes - 1, file) : 0] = '\0';
	if (file)
		fclose(file);
}

/* Return the owner of the journal @fd, if all four user ids of the process are that user's, else NOBODY. A process that
 * once had another user's rights may have written anything into a journal of that user. */
static uid_t owner_of(pid_t pid, int fd)
{
	char text[4096];
	unsigned int ids[4];
	const char *line;
	struct stat st;

	read_proc(pid, "status", text, sizeof(text));
	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4 ||
	    fstat(fd, &st))
		return NOBODY;
	for (unsigned int i = 0; i < 4; i++)
		if (ids[i] != st.st_uid)
			return NOBODY;
	return st.st_uid;
}

/* Return the real user id of the process, the user who started it, also if it runs with more rights. */
static uid_t user_of(pid_t pid)
{
	char text[4096];
	const char *line;
	unsigned int user;

	read_proc(pid, "status", text, sizeof(text));
	line = strstr(text, "\nUid:");
	return line && sscanf(line, "\nUid: %u", &user) == 1 ? user : NOBODY;
}

/* What one search has read of the lists of mappings: for each user the part of MAPS_OF_USER that is used up. */
struct allowance { struct gm_table of_user; };

/* May a process's list of mappings be read up to @bytes, of which @more are new? Without @allowance (NULL), only this
 * process was asked for. */
static bool may_read(struct allowance *allowance, pid_t pid, size_t bytes, size_t more)
{
	uint64_t had;
	uid_t user;

	if (bytes <= MAPS_USUAL || !allowance)
		return bytes <= MAPS_MOST;
	user = user_of(pid);
	had = gm_table_get(&allowance->of_user, user, 0) + more;
	return had <= MAPS_OF_USER && !gm_table_put(&allowance->of_user, user, 0, had);
}

static int attach(int64_t number, struct allowance *allowance, struct gm_attached *ret_attached)
{
	pid_t pid = (pid_t)number;
	size_t room = 0, bytes = 0;
	unsigned int tries = 0;
	char *line = NULL;
	ssize_t n;
	FILE *maps;
	int r = -ENOENT;

	memset(ret_attached, 0, sizeof(*ret_attached));
	ret_attached->fd = -1;
	if (number <= 0 || number > INT32_MAX)
		return -ESRCH;
	maps = gm_attach_proc(pid, "maps");
	if (!maps)
		return errno == ENOENT ? -ESRCH : -errno;
	while (tries < TRIES_MOST && (n = getline(&line, &room, maps)) > 0) {
		struct mapping mapping;
		int one;

		if (!may_read(allowance, pid, bytes += (size_t)n, (size_t)n)) {
			r = -E2BIG;
			break;
		}
		if (!read_line(line, &mapping))
			continue;
		tries++;
		one = try_mapping(pid, &mapping, ret_attached);
		if (!one || one != -ENOENT)
			r = one;
		if (!one)
			break;
	}
	if (r && ferror(maps))
		r = -EACCES;
	free(line);
	fclose(maps);
	if (!r)
		ret_attached->owner = owner_of(pid, ret_attached->fd);
	return r;
}

int gm_attach(int64_t pid, struct gm_attached *ret_attached)
{
	return attach(pid, NULL, ret_attached);
}

bool gm_attach_ended(const struct gm_attached *attached)
{
	return gm_copy_alive(attached->fd) == 0;
}

bool gm_attach_stopped(int64_t pid)
{
	char text[512];
	const char *state;

	read_proc((pid_t)pid, "stat", text, sizeof(text));
	state = strrchr(text, ')');
	return state && state[1] == ' ' && (state[2] == 'T' || state[2] == 't');
}

/* The one mapping of a part of a journal. */
static struct { uint8_t *base; size_t bytes; volatile sig_atomic_t cut; } mapped;

static bool lay_zeroes(void)
{
	return mmap(mapped.base, mapped.bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Replace the mapping by zeroes, because its file was cut short. A SIGBUS from any other address gets its default
 * action: the access is repeated, and the signal kills us. */
static void on_bus(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (mapped.base && (uintptr_t)info->si_addr - (uintptr_t)mapped.base < mapped.bytes && lay_zeroes())
		mapped.cut = 1;
	else
		signal(number, SIG_DFL);
}

void *gm_attach_map(const struct gm_attached *attached, size_t bytes)
{
	struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, attached->fd, 0);

	if (base == MAP_FAILED)
		return NULL;
	mapped.base = base;
	mapped.bytes = bytes;
	mapped.cut = 0;
	sigaction(SIGBUS, &action, NULL);
	return base;
}

bool gm_attach_was_cut(void)
{
	return mapped.cut;
}

void gm_attach_unmap(void)
{
	if (mapped.base)
		munmap(mapped.base, mapped.bytes);
	mapped.base = NULL;
}

const char *gm_attach_explain(int64_t pid, int error)
{
	static char left[128];

	switch (-error) {
	case ESRCH:
		snprintf(left, sizeof(left), "there is no such process any more; it left a journal: gpumem recover "
			 "%lld makes a snapshot of it", (long long)pid);
		if (gm_places_left_by(pid))
			return left;
		return "there is no such process";
	case ENOENT:
		return "it has no journal: it was not started under libgpumem, or has made no CUDA call yet";
	case EWOULDBLOCK:
		return "its journal is leased (fcntl F_SETLEASE): try again later";
	case E2BIG:
		return "it has too many mappings to look for a journal among them";
	case EACCES:
	case EPERM:
		return "it may not be looked into: it belongs to another user, or has more rights than this one";
	default:
		return strerror(-error);
	}
}

/* ---- all processes ---------------------------------------------------------------------------- */

/* One search. A journal is mapped by its process, and by each child that the process forked. */
struct search {
	void (*visit)(void *arg, int64_t pid, const struct gm_attached *attached);
	void *arg;
	struct allowance allowance;
	struct gm_table visited;	/* (device, inode) of the journals that were shown */
	struct gm_mapper *others;	/* processes that have a journal mapped that they did not write */
	size_t other_count, missed;
};

struct gm_mapper { int64_t pid; dev_t device; ino_t inode; };

static bool was_visited(const struct search *search, const struct stat *st)
{
	return gm_table_get(&search->visited, st->st_dev, st->st_ino) != 0;
}

static void show(struct search *search, int64_t pid, const struct gm_attached *attached, const struct stat *st)
{
	search->missed += gm_table_put(&search->visited, st->st_dev, st->st_ino, 1) != 0;
	search->visit(search->arg, pid, attached);
}

/* Is @error a usual one: has the process ended, has it no journal, or may we not read it? */
static bool is_usual(int error)
{
	return error == -ESRCH || error == -ENOENT || error == -EACCES || error == -EPERM;
}

/* Show process @pid if it wrote the journal that it has mapped; else keep it for later. */
static void look_at(struct search *search, int64_t pid)
{
	struct gm_attached attached;
	struct gm_mapper *other;
	struct gm_header header;
	struct stat st;
	int r = attach(pid, &search->allowance, &attached);

	if (r) {
		search->missed += !is_usual(r);
		return;
	}
	if (fstat(attached.fd, &st) || was_visited(search, &st)) {
		close(attached.fd);
		return;
	}
	if (!gm_header_read(attached.fd, &header) && gm_copy_is_of(&header, pid)) {
		show(search, pid, &attached, &st);
	} else {
		other = gm_list_add(&search->others, &search->other_count, sizeof(*other));
		if (other)
			*other = (struct gm_mapper){ pid, st.st_dev, st.st_ino };
		search->missed += !other;
	}
	close(attached.fd);
}

/* Show @other for the journal that it has mapped, if no process was found that wrote the journal (it is in another time
 * namespace, or the journal has another version) and the writer may be alive. The first such process is shown. */
static void look_at_other(struct search *search, const struct gm_mapper *other)
{
	struct gm_attached attached;
	struct stat st;
	int r;

	if (gm_table_get(&search->visited, other->device, other->inode))
		return;
	r = attach(other->pid, &search->allowance, &attached);
	if (r) {
		search->missed += !is_usual(r);
		return;
	}
	if (!fstat(attached.fd, &st) && !was_visited(search, &st) && !gm_attach_ended(&attached))
		show(search, other->pid, &attached, &st);
	close(attached.fd);
}

size_t gm_discover(void (*visit)(void *arg, int64_t pid, const struct gm_attached *attached), void *arg)
{
	struct search search = { .visit = visit, .arg = arg };
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	while (proc && (entry = readdir(proc))) {
		long pid = strtol(entry->d_name, NULL, 10);

		if (pid > 0 && pid != getpid())
			look_at(&search, pid);
	}
	if (proc)
		closedir(proc);
	for (size_t i = 0; i < search.other_count; i++)
		look_at_other(&search, &search.others[i]);
	free(search.others);
	gm_table_free(&search.visited);
	gm_table_free(&search.allowance.of_user);
	return search.missed;
}
