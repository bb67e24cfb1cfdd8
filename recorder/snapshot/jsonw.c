/*
 * jsonw.c - the streaming JSON writer: one buffer, one descriptor, an error that sticks.
 *
 * Numbers and short words go straight into the buffer. The buffer is flushed when fewer than
 * GM_JSONW_ROOM bytes are left, so one check for each value is enough. Contexts as jsonw.h.
 */
#include "recorder/snapshot/jsonw.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GM_JSONW_ROOM 80u	/* the longest single item: a comma, a raw value of 63 bytes, slack */

void gm_jsonw_init(struct gm_jsonw *w, int fd, uint64_t limit)
{
	struct stat st;

	memset(w, 0, offsetof(struct gm_jsonw, buffer));
	w->fd = fd;
	w->limit = limit;
	if (fstat(fd, &st) == 0) {
		w->device = st.st_dev;
		w->inode = st.st_ino;
	}
}

/* Does the descriptor still name our file? Checked at each flush of 64 KiB, whose cost hides the check. The host
 * could still replace the file between check and write, but our high descriptor number makes that unlikely
 * (outfile.c). */
static bool is_still_ours(const struct gm_jsonw *w)
{
	struct stat st;

	return fstat(w->fd, &st) == 0 && st.st_dev == w->device && st.st_ino == w->inode;
}

static void fail(struct gm_jsonw *w, int error)
{
	if (!w->error)
		w->error = error;
}

static void flush(struct gm_jsonw *w)
{
	const char *at = w->buffer;
	size_t left = w->used;

	w->used = 0;
	if (w->error)
		return;
	if (left > w->limit || w->flushed > w->limit - left) {
		fail(w, -EFBIG);
		return;
	}
	if (left && !is_still_ours(w)) {
		fail(w, -EBADF);
		return;
	}
	while (left) {
		ssize_t n = write(w->fd, at, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fail(w, n < 0 ? -errno : -EIO);
			return;
		}
		at += n;
		left -= (size_t)n;
		w->flushed += (uint64_t)n;
	}
}

static inline void room(struct gm_jsonw *w)
{
	if (w->used > GM_JSONW_BUFFER - GM_JSONW_ROOM)
		flush(w);
}

/* Give a value to the sink, if there is one. False: there is none. */
static inline bool sunk(struct gm_jsonw *w, char type, const char *text, int64_t number)
{
	int r;

	if (!w->sink)
		return false;
	w->flushed += text ? (uint64_t)number : 8;
	r = w->error ? 0 : w->flushed > w->limit ? -EFBIG : w->sink->take(w->sink, type, text, number);
	if (r)
		fail(w, r);
	return true;
}

/* Prepare for a value: write the comma that separates it from the value before. False: there was an error. */
static inline bool value_begins(struct gm_jsonw *w)
{
	if (w->error)
		return false;
	room(w);
	if (w->comma)
		w->buffer[w->used++] = ',';
	w->comma = true;
	return true;
}

static void open_level(struct gm_jsonw *w, char bracket)
{
	if (sunk(w, bracket, NULL, 0) || !value_begins(w))
		return;
	if (w->depth == GM_JSONW_DEPTH) {
		fail(w, -EINVAL);
		return;
	}
	w->buffer[w->used++] = bracket;
	w->nesting[w->depth++] = bracket;
	w->comma = false;
}

void gm_jsonw_object(struct gm_jsonw *w)
{
	open_level(w, '{');
}

void gm_jsonw_array(struct gm_jsonw *w)
{
	open_level(w, '[');
}

void gm_jsonw_end(struct gm_jsonw *w)
{
	if (sunk(w, '}', NULL, 0) || w->error)
		return;
	if (!w->depth) {
		fail(w, -EINVAL);
		return;
	}
	room(w);
	w->buffer[w->used++] = w->nesting[--w->depth] == '{' ? '}' : ']';
	w->comma = true;
}

static unsigned int put_digits(char *at, uint64_t value)
{
	char text[20];
	unsigned int from = sizeof(text), length;

	do
		text[--from] = (char)('0' + value % 10);
	while (value /= 10);
	length = (unsigned int)sizeof(text) - from;
	memcpy(at, text + from, length);
	return length;
}

void gm_jsonw_i64(struct gm_jsonw *w, int64_t value)
{
	if (sunk(w, 'i', NULL, value) || !value_begins(w))
		return;
	if (value < 0)
		w->buffer[w->used++] = '-';
	w->used += put_digits(w->buffer + w->used,
			      value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

bool gm_jsonw_record(struct gm_jsonw *w, const void *record, size_t bytes)
{
	return sunk(w, 'b', record, (int64_t)bytes);
}

void gm_jsonw_raw(struct gm_jsonw *w, const char *json, size_t length)
{
	if (sunk(w, 'r', json, (int64_t)length) || !value_begins(w))
		return;
	if (length > 63) {
		fail(w, -EINVAL);
		return;
	}
	memcpy(w->buffer + w->used, json, length);
	w->used += (uint32_t)length;
}

void gm_jsonw_bool(struct gm_jsonw *w, bool value)
{
	gm_jsonw_raw(w, value ? "true" : "false", value ? 4 : 5);
}

void gm_jsonw_null(struct gm_jsonw *w)
{
	gm_jsonw_raw(w, "null", 4);
}

static void put_escape(struct gm_jsonw *w, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	char *at = w->buffer + w->used;

	at[0] = '\\';
	at[1] = c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : c < 0x20 ? 'u' : (char)c;
	w->used += 2;
	if (at[1] == 'u') {
		at[2] = at[3] = '0';
		at[4] = hex[c >> 4];
		at[5] = hex[c & 15];
		w->used += 4;
	}
}

/* Return how many bytes at @s need no escape in JSON: plain ASCII. */
static size_t plain_length(const unsigned char *s, size_t left)
{
	size_t n = 0;

	while (n < left && s[n] >= 0x20 && s[n] < 0x80 && s[n] != '"' && s[n] != '\\')
		n++;
	return n;
}

/* Write one character that is not plain ASCII. Returns how many bytes of @s it consumed. */
static size_t put_character(struct gm_jsonw *w, const unsigned char *s, size_t left)
{
	unsigned int n, bad;

	if (s[0] < 0x80) {
		put_escape(w, s[0]);
		return 1;
	}
	n = gm_utf8_length(s, left, &bad);
	memcpy(w->buffer + w->used, n ? (const char *)s : "\xef\xbf\xbd", n ? n : 3);
	w->used += n ? n : 3;
	return n ? n : bad;
}

void gm_jsonw_bytes(struct gm_jsonw *w, const char *text, size_t length)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t i = 0;

	if (sunk(w, 's', text, (int64_t)length) || !value_begins(w))
		return;
	w->buffer[w->used++] = '"';
	while (i < length && !w->error) {
		size_t n = plain_length(s + i, length - i);

		room(w);
		if (n > GM_JSONW_BUFFER - GM_JSONW_ROOM / 2 - w->used)
			n = GM_JSONW_BUFFER - GM_JSONW_ROOM / 2 - w->used;
		memcpy(w->buffer + w->used, s + i, n);
		w->used += (uint32_t)n;
		i += n;
		if (i < length && (s[i] < 0x20 || s[i] >= 0x80 || s[i] == '"' || s[i] == '\\'))
			i += put_character(w, s + i, length - i);
	}
	room(w);
	w->buffer[w->used++] = '"';
}

void gm_jsonw_text(struct gm_jsonw *w, const char *text)
{
	if (text)
		gm_jsonw_bytes(w, text, strlen(text));
	else
		gm_jsonw_null(w);
}

void gm_jsonw_key(struct gm_jsonw *w, const char *key)
{
	gm_jsonw_text(w, key);
	if (w->sink)
		return;
	room(w);
	w->buffer[w->used++] = ':';
	w->comma = false;
}

void gm_jsonw_key_object(struct gm_jsonw *w, const char *key)
{
	gm_jsonw_key(w, key);
	gm_jsonw_object(w);
}

void gm_jsonw_key_array(struct gm_jsonw *w, const char *key)
{
	gm_jsonw_key(w, key);
	gm_jsonw_array(w);
}

void gm_jsonw_key_u64(struct gm_jsonw *w, const char *key, uint64_t value)
{
	gm_jsonw_key(w, key);
	gm_jsonw_u64(w, value);
}

void gm_jsonw_key_i64(struct gm_jsonw *w, const char *key, int64_t value)
{
	gm_jsonw_key(w, key);
	gm_jsonw_i64(w, value);
}

void gm_jsonw_key_bool(struct gm_jsonw *w, const char *key, bool value)
{
	gm_jsonw_key(w, key);
	gm_jsonw_bool(w, value);
}

void gm_jsonw_key_text(struct gm_jsonw *w, const char *key, const char *value)
{
	gm_jsonw_key(w, key);
	gm_jsonw_text(w, value);
}

void gm_jsonw_key_bytes(struct gm_jsonw *w, const char *key, const char *text, size_t length)
{
	gm_jsonw_key(w, key);
	gm_jsonw_bytes(w, text, length);
}

void gm_jsonw_key_i64_if(struct gm_jsonw *w, const char *key, bool known, int64_t value)
{
	gm_jsonw_key(w, key);
	if (known)
		gm_jsonw_i64(w, value);
	else
		gm_jsonw_null(w);
}

void gm_jsonw_key_u64_if(struct gm_jsonw *w, const char *key, bool known, uint64_t value)
{
	gm_jsonw_key_i64_if(w, key, known, (int64_t)value);	/* as gm_jsonw_u64 */
}

int gm_jsonw_finish(struct gm_jsonw *w)
{
	if (!w->error && w->depth)
		fail(w, -EINVAL);
	flush(w);
	return w->error;
}
