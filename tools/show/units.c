/*
 * units.c - bytes for people: see units.h.
 */
#include "tools/show/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* @bytes of 2^@shift each, as "%.2f" has them: to the nearest hundredth, halves to the even one. A
 * table of a million events has a million of these. */
static void put_hundredths(char *ret, size_t room, uint64_t bytes, size_t shift, const char *unit)
{
	uint64_t all = bytes * 100, hundredths = all >> shift, rest = all & ((UINT64_C(1) << shift) - 1);
	uint64_t half = UINT64_C(1) << (shift - 1);
	char text[24], *at = text + sizeof(text);
	size_t length = strlen(unit) + 1;

	hundredths += rest > half || (rest == half && hundredths % 2);
	memcpy(at -= length, unit, length);
	*--at = ' ';
	for (int digits = 0; digits < 3 || hundredths; digits++) {
		if (digits == 2)
			*--at = '.';
		*--at = (char)('0' + hundredths % 10);
		hundredths /= 10;
	}
	length = (size_t)(text + sizeof(text) - at);
	memcpy(ret, at, length < room ? length : room);
	ret[room - 1] = '\0';
}

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
	if (bytes >> 53) {		/* rounded already */
		snprintf(ret, room, "%.2f %s", value, units[u]);
		return;
	}
	put_hundredths(ret, room, bytes, 10 * (u + 1), units[u]);
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
