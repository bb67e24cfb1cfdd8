/*
 * libshim.c - another provider of driver functions (a quota library, say), loaded by the program:
 * what it hands out is its own, and is not to be replaced.
 */
#pragma GCC visibility push(default)
int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes);
int cuMemCreate(void);

int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes)
{
	*address = 0x500000000 + bytes;
	return 0;
}

int cuMemCreate(void)
{
	return 777;
}
