/*
 * outfile_name.c - the names of files that are made from a template: see outfile.h.
 *
 * Thread context: any. No malloc, no locale; of stdio only snprintf of integers.
 */
#include "recorder/snapshot/outfile.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "recorder/snapshot/jsonw.h"

#define NAME_BYTES 255			/* the longest name that file systems take */

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

/* Append a word that the program or its user chose. Replace slashes, characters that a terminal obeys, and
 * invalid UTF-8. */
static void put_word(struct text *text, const char *from)
{
	const unsigned char *at = (const unsigned char *)from;

	while (at && *at) {
		unsigned int bad = *at == '/' ? 1 : (unsigned int)gm_utf8_control(at);
		unsigned int length = bad ? 0 : *at < 0x80 ? 1 : gm_utf8_length(at, SIZE_MAX, &bad);

		put(text, length ? (const char *)at : "_", length ? length : 1);
		at += length ? length : bad;
	}
}

static void put_number(struct text *text, uint64_t value)
{
	char digits[24];

	put(text, digits, (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value));
}

/* Append the time as 20251120T154012Z. Without gmtime_r, which takes a lock and may read a file. */
static void put_time(struct text *text, uint64_t time_us)
{
	unsigned long long seconds = time_us / 1000000;
	/* Days since 0000-03-01, by eras of 400 years: H. Hinnant, "chrono-compatible
	 * low-level date algorithms". */
	uint64_t z = seconds / 86400 + 719468, era = z / 146097, doe = z % 146097;
	uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	uint64_t mp = (5 * doy + 2) / 153, month = mp < 10 ? mp + 3 : mp - 9;
	char buffer[48];

	put(text, buffer, (size_t)snprintf(buffer, sizeof(buffer), "%04llu%02u%02uT%02u%02u%02uZ",
		(unsigned long long)(yoe + era * 400 + (month <= 2)), (unsigned int)month,
		(unsigned int)(doy - (153 * mp + 2) / 5 + 1), (unsigned int)(seconds / 3600 % 24),
		(unsigned int)(seconds / 60 % 60), (unsigned int)(seconds % 60)));
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
			put_number(&text, (uint64_t)words->pid);
			break;
		case 'k':
			put_number(&text, words->rank < 0 ? 0 : (uint64_t)words->rank);
			break;
		case 't':
			put_time(&text, words->time_us);
			break;
		case 'r':
			put_word(&text, words->reason);
			if (words->number) {
				put(&text, "-", 1);
				put_number(&text, words->number);
			}
			break;
		case '%':
			put(&text, "%", 1);
			break;
		default:			/* not one of our words: keep it as it is */
			at--;
			put(&text, at, 1);
			break;
		}
	}
	return text.length;
}

/* Return where the extension of @name begins, so that "name.json" can become "name-2.json". */
static size_t stem_length(const char *name)
{
	size_t length = strlen(name);

	return length > 5 && !strcmp(name + length - 5, ".json") ? length - 5 : length;
}

void gm_outfile_numbered(const char *name, unsigned int number, char ret[256])
{
	size_t stem = stem_length(name), extension = strlen(name) - stem, room;
	char suffix[16] = "";
	struct text text = { ret, 0, NAME_BYTES + 1 };

	if (number > 1)
		snprintf(suffix, sizeof(suffix), "-%u", number);
	room = NAME_BYTES - strlen(suffix) - (extension < 16 ? extension : 0);
	if (stem > room) {
		stem = room;
		while (stem && ((unsigned char)name[stem] & 0xc0) == 0x80)
			stem--;
	}
	put(&text, name, stem);
	put(&text, suffix, strlen(suffix));
	put(&text, name + strlen(name) - extension, extension);
}
