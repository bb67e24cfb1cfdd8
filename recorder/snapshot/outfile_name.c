/*
 * outfile_name.c - the names of files that are made from a template: see outfile.h.
 *
 * Thread and signal context: any. No malloc, no stdio, no locale.
 */
#include "recorder/snapshot/outfile.h"

#include <string.h>

#define NAME_BYTES 255			/* what file systems take */

struct text { char *at; size_t length, bytes; };

static void put(struct text *text, const char *from, size_t length)
{
	size_t room = text->bytes - 1 - text->length;

	if (length > room)
		length = room;
	memcpy(text->at + text->length, from, length);
	text->length += length;
	text->at[text->length] = '\0';
}

/* A word of somebody else's choice: no path, nothing that a terminal would obey. */
static void put_word(struct text *text, const char *from)
{
	for (; from && *from; from++) {
		bool bad = *from == '/' || (unsigned char)*from < 0x20 || *from == 0x7f;

		put(text, bad ? "_" : from, 1);
	}
}

static void put_number(struct text *text, uint64_t value, unsigned int digits)
{
	char buffer[20];
	unsigned int at = sizeof(buffer);

	do {
		buffer[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (at && (value || sizeof(buffer) - at < digits));
	put(text, buffer + at, sizeof(buffer) - at);
}

/* 20251120T154012Z: no time zone, since reading one takes locks and files. */
static void put_time(struct text *text, uint64_t time_us)
{
	uint64_t seconds = time_us / 1000000, days = seconds / 86400;
	/* Days since 0000-03-01, by eras of 400 years: H. Hinnant, "chrono-compatible
	 * low-level date algorithms". */
	uint64_t z = days + 719468, era = z / 146097, doe = z % 146097;
	uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	uint64_t mp = (5 * doy + 2) / 153, month = mp < 10 ? mp + 3 : mp - 9;

	put_number(text, yoe + era * 400 + (month <= 2), 4);
	put_number(text, month, 2);
	put_number(text, doy - (153 * mp + 2) / 5 + 1, 2);
	put(text, "T", 1);
	put_number(text, seconds / 3600 % 24, 2);
	put_number(text, seconds / 60 % 60, 2);
	put_number(text, seconds % 60, 2);
	put(text, "Z", 1);
}

size_t gm_outfile_expand(const char *template, const struct gm_outfile_words *words,
			 char *ret, size_t bytes)
{
	struct text text = { ret, 0, bytes };

	ret[0] = '\0';
	for (const char *at = template; *at; at++) {
		if (at[0] != '%') {
			put(&text, at, 1);
			continue;
		}
		switch (*++at) {
		case 'c':
			put_word(&text, words->command);
			break;
		case 'h':
			put_word(&text, words->host);
			break;
		case 'p':
			put_number(&text, (uint64_t)words->pid, 1);
			break;
		case 'k':
			put_number(&text, words->rank < 0 ? 0 : (uint64_t)words->rank, 1);
			break;
		case 't':
			put_time(&text, words->time_us);
			break;
		case 'r':
			put_word(&text, words->reason);
			if (words->number) {
				put(&text, "-", 1);
				put_number(&text, words->number, 1);
			}
			break;
		case '%':
			put(&text, "%", 1);
			break;
		default:			/* no word of ours: as it stands */
			at--;
			put(&text, at, 1);
			break;
		}
	}
	return text.length;
}

/* Where "name.json" becomes "name-2.json": the place of the extension. */
static size_t stem_length(const char *name)
{
	size_t length = strlen(name);

	return length > 5 && !strcmp(name + length - 5, ".json") ? length - 5 : length;
}

void gm_outfile_numbered(const char *name, unsigned int number, char ret[256])
{
	size_t stem = stem_length(name), extension = strlen(name) - stem, room;
	char digits[24];
	struct text suffix = { digits, 0, sizeof(digits) };
	struct text text = { ret, 0, NAME_BYTES + 1 };

	digits[0] = '\0';
	if (number > 1) {
		put(&suffix, "-", 1);
		put_number(&suffix, number, 1);
	}
	room = NAME_BYTES - suffix.length - (extension < 16 ? extension : 0);
	if (stem > room) {
		stem = room;
		while (stem && ((unsigned char)name[stem] & 0xc0) == 0x80)
			stem--;
	}
	put(&text, name, stem);
	put(&text, digits, suffix.length);
	put(&text, name + strlen(name) - extension, extension);
}
