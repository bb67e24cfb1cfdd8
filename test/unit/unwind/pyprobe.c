/*
 * pyprobe.c - for Python through ctypes: is the stack of this interpreter the same by all three
 * unwinders? Returns the depth, or minus the depth where they differ.
 */
#define _GNU_SOURCE
#include "test/unit/unwind/oracle.h"

__attribute__((visibility("default"))) int pyprobe_check(void);

int pyprobe_check(void)
{
	static struct oracle o;

	if (!oracle_unw_backtrace && !oracle_open())
		return 0;
	if (!oracle_check(&o, ORACLE_BOTH)) {
		fprintf(stderr, "pyprobe: %s\n", o.why);
		return -o.count;
	}
	if (o.flags) {
		fprintf(stderr, "pyprobe: flags %u\n", o.flags);
		return -o.count;
	}
	return o.count;
}
