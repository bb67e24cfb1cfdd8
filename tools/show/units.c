/*
 * units.c - bytes for people: see units.h.
 */
#include "tools/show/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

int gm_units_parse(const char *text, uint64_t *ret)
{
	static const char letters[] = "KMGTPE";
	char *end;
	double value = strtod(text, &end);
	double unit = 1;

	if (end == text || value < 0)
		return -EINVAL;
	for (size_t u = 0; *end && u < sizeof(letters) - 1; u++) {
		unit *= 1024;
		if ((*end & ~0x20) == letters[u]) {
			end++;
			break;
		}
		if (u == sizeof(letters) - 2)
			unit = 1;
	}
	if (!strcasecmp(end, "b") || !strcasecmp(end, "ib"))
		end += end[1] ? 2 : 1;
	if (*end || value * unit >= 18446744073709551615.0)
		return -EINVAL;
	*ret = (uint64_t)(value * unit);
	return 0;
}

int gm_units_seconds(const char *text, double least, double most, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end != text && !*end && *ret >= least && *ret <= most ? 0 : -EINVAL;
}
