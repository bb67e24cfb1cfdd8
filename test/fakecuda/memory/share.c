/*
 * share.c - memory that another process may come to share: a memfd of its own.
 *
 *   memfd  [ contents, a multiple of 2 MiB | ticket: magic, size, device ]
 *
 * The descriptor says all there is to know, wherever it is passed, and the memory lives as long as
 * anybody has it open or mapped. It is charged to the device in the process that made it. Lock:
 * fc.lock.
 */
#define _GNU_SOURCE
#include "test/fakecuda/memory/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t fc_fd_inode(int fd)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) ? st.st_ino : 0;
}

void fc_fd_close(int fd, uint64_t inode)
{
	if (inode && fc_fd_inode(fd) == inode)
		close(fd);
}

#define TICKET_MAGIC 0x6d656d6463756461ULL

struct ticket {
	uint64_t magic, size;
	int device;
};

static void release_shared(struct fc_phys *p)
{
	munmap(p->host, p->size);
	fc_fd_close(p->fd, p->inode);
	if (p->dev && !p->imported) {
		fc_device_charge(p->dev, -(ssize_t)p->size);
		p->dev->charged_apart -= p->size;
	}
}

static CUresult map_shared(struct fc_phys *p)
{
	void *host = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->fd,
			  0);

	if (host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->host = host;
	p->inode = fc_fd_inode(p->fd);
	p->refs = 1;
	p->release = release_shared;
	return CUDA_SUCCESS;
}

CUresult fc_phys_shared(struct fc_device *dev, size_t size, struct fc_phys **ret_phys)
{
	struct fc_phys *p;
	struct ticket t = { .magic = TICKET_MAGIC };
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	t.size = (size + FC_CHUNK - 1) / FC_CHUNK * FC_CHUNK;
	t.device = dev ? dev->ordinal : -1;
	if (dev && !fc_device_fits(dev, t.size))
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		return r;
	p->dev = dev;
	p->size = t.size;
	p->fd = memfd_create("fakecuda shared", MFD_CLOEXEC);
	if (p->fd >= 0 && !ftruncate(p->fd, (off_t)(p->size + 4096)) &&
	    pwrite(p->fd, &t, sizeof(t), (off_t)p->size) == sizeof(t))
		r = map_shared(p);
	if (r) {
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return r;
	}
	if (dev) {
		fc_device_charge(dev, (ssize_t)p->size);
		dev->charged_apart += p->size;
	}
	*ret_phys = p;
	return CUDA_SUCCESS;
}

CUresult fc_phys_import(int fd, struct fc_phys **ret_phys)
{
	struct fc_phys *p;
	struct ticket t;
	struct stat st;
	CUresult r;

	if (fstat(fd, &st) || st.st_size < 4096 ||
	    pread(fd, &t, sizeof(t), st.st_size - 4096) != sizeof(t) || t.magic != TICKET_MAGIC ||
	    t.size != (uint64_t)st.st_size - 4096 || t.device >= fc.n_devices)
		return CUDA_ERROR_INVALID_VALUE;
	p = calloc(1, sizeof(*p));
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->dev = t.device < 0 ? NULL : &fc.devices[t.device];
	p->size = t.size;
	p->imported = true;
	p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	r = p->fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : map_shared(p);
	if (r) {
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return r;
	}
	*ret_phys = p;
	return CUDA_SUCCESS;
}

int fc_phys_export(const struct fc_phys *p)
{
	return fc_fd_inode(p->fd) == p->inode ? fcntl(p->fd, F_DUPFD_CLOEXEC, 0) : -1;
}

bool fc_phys_is_fd(const struct fc_phys *p, int fd)
{
	return p->release == release_shared && fc_fd_inode(fd) == p->inode;
}

int fc_phys_map_at(const struct fc_phys *p, uint64_t va, size_t size)
{
	return mmap((void *)(uintptr_t)va, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		    p->fd, 0) == MAP_FAILED ? -1 : 0;
}
