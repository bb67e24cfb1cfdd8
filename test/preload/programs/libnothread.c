/*
 * libnothread.c - a host where no thread can be created.
 */
#include <errno.h>
#include <pthread.h>

#pragma GCC visibility push(default)

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
	(void)thread;
	(void)attributes;
	(void)start;
	(void)arg;
	return EAGAIN;
}
