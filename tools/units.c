/*
 * units.c - bytes for people: see units.h.
 */
#include "tools/units.h"

#include <stdio.h>

void gm_units_bytes(uint64_t bytes, char *ret, size_t room)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes / 1024;
	size_t u = 0;

	if (bytes < 1024) {
		snprintf(ret, room, "%llu B", (unsigned long long)bytes);
		return;
	}
	while (value >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		u++;
	}
	snprintf(ret, room, "%.2f %s", value, units[u]);
}
