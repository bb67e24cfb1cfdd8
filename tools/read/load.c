/*
 * load.c - whatever a verb is given, as one parsed snapshot: see load.h.
 */
#define _GNU_SOURCE
#include "tools/read/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/snapshot/snapshot.h"
#include "tools/read/attach.h"
#include "tools/read/bulk.h"
#include "tools/read/input.h"
#include "tools/read/json_read.h"
#include "tools/read/limit.h"
#include "tools/read/pickle_read.h"
#include "tools/torch/torch_read.h"

#define READS "; this gpumem reads version 1"
#define VALUES_MOST ((size_t)1 << 35)	/* of memory for what is read */

__attribute__((format(printf, 2, 3)))
static int refuse(struct gm_loaded *ret, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(ret->error, sizeof(ret->error), format, args);
	va_end(args);
	return -EBADMSG;
}

/* @whole is JSON that one of our snapshots may be. */
static int check_ours(const struct gm_value *whole, struct gm_loaded *ret)
{
	const struct gm_value *version = gm_value_get(whole, "version");

	if (strcmp(gm_value_string(whole, "format"), "gpumem-snapshot"))
		return refuse(ret, "JSON, but not a snapshot of gpumem or PyTorch");
	if (!version)
		return refuse(ret, "a snapshot that does not say its version");
	if (version->type == GM_VALUE_REAL)
		return version->u.real == 1 ? 0 :
			refuse(ret, "a snapshot of version %.17g" READS, version->u.real);
	if (version->type == GM_VALUE_UINT)
		return refuse(ret, "a snapshot of version %llu" READS,
			      (unsigned long long)version->u.word);
	if (version->type != GM_VALUE_INT)
		return refuse(ret, "a snapshot whose version is no number");
	return version->u.integer == 1 ? 0 :
		refuse(ret, "a snapshot of version %lld" READS, (long long)version->u.integer);
}

/* @said, a snapshot of PyTorch, as one of ours, in values of its own: what it said goes. */
static int make_ours(const struct gm_value *said, struct gm_loaded *ret, const struct gm_value **ret_whole)
{
	struct gm_values *values = gm_values_open(VALUES_MOST);

	*ret_whole = values ? gm_torch_read(values, said) : NULL;
	gm_values_close(ret->values);
	ret->values = values;
	return *ret_whole ? 0 : -ENOMEM;
}

static int understand(const struct gm_value *read, bool pickle, struct gm_loaded *ret)
{
	const struct gm_value *whole = read;
	int r = 0;

	if (gm_torch_is(read) && !gm_value_get(read, "format")) {
		ret->from = GM_LOADED_TORCH;
		if (ret->as_said) {
			ret->torch = read;
			return 0;
		}
		r = make_ours(read, ret, &whole);
	} else {
		r = pickle ? refuse(ret, "a pickle, but not a snapshot of PyTorch") :
		    check_ours(read, ret);
	}
	if (r)
		return r;
	gm_values_scrub(ret->values);	/* what is made of it goes to jansson, which takes none */
	ret->root = gm_bulk_root(whole);
	return ret->root ? 0 : -ENOMEM;
}

/* What is easily taken for a snapshot, and why it is none. NULL: nothing that is known. */
static const char *mistaken(const struct gm_source *source)
{
	static const struct { const char *begins, *why; } known[] = {
		{ "\x1f\x8b", "compressed: name <(zcat FILE) in its place" },
		{ "\x28\xb5\x2f\xfd", "compressed: name <(zstdcat FILE) in its place" },
		{ "\xfd" "7zXZ", "compressed: name <(xzcat FILE) in its place" },
		{ "GPUMJNL1", "a journal, which is read from a file only: name it" },
		{ "PK\x03\x04", "a zip archive, not a snapshot" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (source->have >= strlen(known[i].begins) &&
		    !memcmp(source->bytes, known[i].begins, strlen(known[i].begins)))
			return known[i].why;
	return NULL;
}

/* What @source says, before anything is made of it. */
static int parse(struct gm_source *source, struct gm_loaded *ret, const struct gm_value **ret_read,
		 bool *ret_pickle)
{
	bool pickle;
	int r = -ENOMEM;

	gm_source_more(source, 1, 0);
	if (!source->have)
		return source->error ? source->error :
			refuse(ret, "%s", gm_input_nothing(source->fd));
	if (mistaken(source))
		return refuse(ret, "%s", mistaken(source));
	pickle = (unsigned char)source->bytes[0] == 0x80;
	ret->values = gm_values_open(VALUES_MOST);
	if (ret->values && pickle)
		r = gm_pickle_read(ret->values, source, ret_read, ret->error, sizeof(ret->error));
	else if (ret->values)
		r = gm_json_read(ret->values, source, ret_read, ret->error, sizeof(ret->error));
	if (r && source->error) {
		ret->error[0] = '\0';
		r = source->error;
	}
	*ret_pickle = pickle;
	return r;
}

static bool begins_as_journal(int fd)
{
	uint64_t magic;

	return pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) && magic == GM_MAGIC;
}

static int load_json(int fd, struct gm_loaded *ret)
{
	const struct gm_value *read = NULL;
	struct gm_source source;
	bool pickle = false;
	int r = gm_source_open(&source, fd);

	if (r)
		return r;
	r = parse(&source, ret, &read, &pickle);
	gm_source_close(&source);
	if (!r)
		r = understand(read, pickle, ret);
	if (r)
		gm_load_free(ret);
	return r;
}

/* Of a living process the moment is now, whenever it did something last. */
static int emit(const struct gm_copy *copy, const char *reason, bool recovered, bool alive)
{
	struct gm_snapshot_request request = { .reason = reason, .recovered = recovered };
	struct timespec now;
	int fd = memfd_create("gpumem-json", MFD_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	if (alive && !clock_gettime(CLOCK_REALTIME, &now))
		request.time_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
	r = gm_snapshot_emit(copy, &request, fd);
	if (!r && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r)
		close(fd);
	return r ? r : fd;
}

int gm_load_journal(const struct gm_copy *copy, const char *reason, bool recovered,
		  struct gm_loaded *ret)
{
	int fd = emit(copy, reason, recovered, false), r;

	memset(ret, 0, sizeof(*ret));
	if (fd < 0)
		return fd;
	r = load_json(fd, ret);
	close(fd);
	return r;
}

/* The copy goes before its JSON is read: both are large. */
static int load_journal(int fd, bool alive, struct gm_loaded *ret)
{
	bool tables = ret->tables_only && alive;
	struct gm_copy copy;
	struct stat st;
	int r, json = -1;

	if (!fstat(fd, &st))
		gm_limit_input((uint64_t)st.st_blocks * 512, st.st_size);	/* its copy is as long */
	r = tables ? gm_copy_tables(&copy, fd) : gm_copy_from_file(&copy, fd);
	if (r)
		return refuse(ret, "%s", copy.error);
	r = gm_copy_resolve(&copy, tables ? 0 : UINT64_MAX);
	if (!r)
		json = emit(&copy, alive ? "outside" : "recovered", !alive, alive);
	gm_copy_free(&copy);
	if (json == -EBADMSG)
		return refuse(ret, "damaged: its snapshot would be out of all proportion");
	if (r || json < 0)
		return r ? r : json;
	r = load_json(json, ret);
	ret->from = alive ? GM_LOADED_PROCESS : GM_LOADED_JOURNAL;
	close(json);
	return r;
}

static int load_file(const char *path, struct gm_loaded *ret)
{
	int fd = gm_input_open(path, ret->error, sizeof(ret->error)), r;

	if (fd == -EISDIR)
		return refuse(ret, "a directory: name a snapshot or a journal in it");
	if (fd < 0)
		return fd;
	if (begins_as_journal(fd))
		r = load_journal(fd, gm_copy_alive(fd) != 0, ret);	/* unknown: as if alive */
	else
		r = load_json(fd, ret);
	close(fd);
	return r;
}

static int load_process(const char *word, struct gm_loaded *ret)
{
	struct gm_attached attached;
	char *end;
	long pid = strtol(word, &end, 10);
	int r;

	if (*end || pid <= 0)
		return -ENOENT;
	r = gm_attach(pid, &attached);
	if (r) {
		refuse(ret, "process %ld: %s", pid, gm_attach_explain(r));
		return r;
	}
	r = load_journal(attached.fd, true, ret);
	close(attached.fd);
	return r;
}

static int load(const char *word, struct gm_loaded *ret)
{
	int r;

	if (!strcmp(word, "-") && begins_as_journal(STDIN_FILENO))
		r = load_journal(STDIN_FILENO, gm_copy_alive(STDIN_FILENO) != 0, ret);
	else if (!strcmp(word, "-"))
		r = load_json(STDIN_FILENO, ret);
	else
		r = load_file(word, ret);
	if (r == -ENOENT && word[0] >= '0' && word[0] <= '9') {
		ret->error[0] = '\0';
		r = load_process(word, ret);
	}
	if (r && !ret->error[0])
		snprintf(ret->error, sizeof(ret->error), "%s", gm_limit_why(r));
	return r;
}

int gm_load(const char *word, struct gm_loaded *ret)
{
	memset(ret, 0, sizeof(*ret));
	return load(word, ret);
}

int gm_load_as_said(const char *word, struct gm_loaded *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->as_said = true;
	return load(word, ret);
}

int gm_load_tables(const char *word, struct gm_loaded *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->tables_only = true;
	return load(word, ret);
}

void gm_load_free(struct gm_loaded *loaded)
{
	gm_bulk_forget(loaded->root);
	json_decref(loaded->root);
	gm_values_close(loaded->values);
	loaded->root = NULL;
	loaded->values = NULL;
	loaded->torch = NULL;
}

int64_t gm_json_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_real(value) ? gm_value_of_real(json_real_value(value)) :
		json_integer_value(value);
}

const char *gm_json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

const json_t *gm_json_list(const json_t *object, const char *key)
{
	const json_t *value = gm_bulk_json(object, key);

	return json_is_array(value) ? value : NULL;
}

const json_t *gm_json_object(const json_t *object, const char *key)
{
	const json_t *value = gm_bulk_json(object, key);

	return json_is_object(value) ? value : NULL;
}
