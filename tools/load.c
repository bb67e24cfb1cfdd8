/*
 * load.c - whatever a verb is given, as one parsed snapshot: see load.h.
 */
#define _GNU_SOURCE
#include "tools/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/image.h"
#include "recorder/snapshot.h"
#include "tools/attach.h"
#include "tools/json_read.h"
#include "tools/pickle_read.h"
#include "tools/torch_read.h"

#define BYTES_MOST (UINT64_C(1) << 33)	/* of a snapshot; a million events take 80 MB */
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

/* @root is JSON that one of our snapshots may be. */
static int check_ours(const struct gm_value *root, struct gm_loaded *ret)
{
	if (strcmp(gm_value_string(root, "format"), "gpumem-snapshot"))
		return refuse(ret, "JSON, but not a snapshot of gpumem or PyTorch");
	if (gm_value_number(root, "version") != 1)
		return refuse(ret, "a snapshot of version %lld; this gpumem reads version 1",
			      (long long)gm_value_number(root, "version"));
	ret->root = gm_value_to_json(root, SIZE_MAX);
	gm_values_close(ret->values);
	ret->values = NULL;
	return ret->root ? 0 : -ENOMEM;
}

/* Takes @text, which ends with NUL behind its @length, and gives it back. */
static int parse(char *text, size_t length, struct gm_loaded *ret)
{
	bool pickle = length && (unsigned char)text[0] == 0x80;
	const struct gm_value *root = NULL;
	int r = -ENOMEM;

	if (!length) {
		free(text);
		return refuse(ret, "an empty file");
	}
	ret->values = gm_values_open(VALUES_MOST);
	if (ret->values && pickle)
		r = gm_pickle_read(ret->values, (unsigned char *)text, length, &root, ret->error,
				   sizeof(ret->error));
	else if (ret->values)
		r = gm_json_read(ret->values, text, length, &root, ret->error, sizeof(ret->error));
	free(text);
	if (!r && gm_torch_is(root) && !gm_value_get(root, "format")) {
		ret->torch = root;
		ret->from = GM_LOADED_TORCH;
		ret->root = gm_torch_read(ret->values, root);
		r = ret->root ? 0 : -ENOMEM;
	} else if (!r) {
		r = pickle ? refuse(ret, "a pickle, but not a snapshot of PyTorch") :
		    check_ours(root, ret);
	}
	if (r)
		gm_load_free(ret);
	return r;
}

/* The text of a whole file, by reading: a mapping could be cut short under us. */
static int read_whole(int fd, char **ret_text, size_t *ret_length)
{
	size_t room = 1 << 16, length = 0;
	struct stat st;
	char *text;

	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
		room = (size_t)st.st_size + 1;
	text = room <= BYTES_MOST ? malloc(room) : NULL;
	while (text) {
		ssize_t n = read(fd, text + length, room - length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int error = errno;

			free(text);
			return -error;
		}
		if (!n) {
			text[length] = '\0';
			*ret_text = text;
			*ret_length = length;
			return 0;
		}
		length += (size_t)n;
		if (length == room) {
			char *larger = room <= BYTES_MOST / 2 ? realloc(text, room * 2) : NULL;

			if (!larger)
				free(text);
			text = larger;
			room *= 2;
		}
	}
	return -ENOMEM;
}

static int load_json(int fd, struct gm_loaded *ret)
{
	size_t length = 0;
	char *text = NULL;
	int r = read_whole(fd, &text, &length);

	return r ? r : parse(text, length, ret);
}

int gm_load_image(const struct gm_image *image, const char *reason, bool recovered,
		  struct gm_loaded *ret)
{
	struct gm_snapshot_request request = { .reason = reason, .recovered = recovered };
	int fd = memfd_create("gpumem-json", MFD_CLOEXEC), r;

	memset(ret, 0, sizeof(*ret));
	if (fd < 0)
		return -errno;
	r = gm_snapshot_emit(image, &request, fd);
	if (!r && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (!r)
		r = load_json(fd, ret);
	close(fd);
	return r;
}

static int load_journal(int fd, bool alive, struct gm_loaded *ret)
{
	struct gm_image image;
	int r = gm_image_copy_file(&image, fd);

	if (r)
		return refuse(ret, "%s", image.error);
	r = gm_image_settle(&image, UINT64_MAX);
	if (!r)
		r = gm_load_image(&image, alive ? "outside" : "recovered", !alive, ret);
	ret->from = alive ? GM_LOADED_PROCESS : GM_LOADED_JOURNAL;
	gm_image_free(&image);
	return r;
}

static bool begins_as_journal(int fd)
{
	uint64_t magic;

	return pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) && magic == GM_MAGIC;
}

static int load_file(const char *path, struct gm_loaded *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISDIR(st.st_mode))
		r = refuse(ret, "a directory: name a snapshot, a journal or a process in it");
	else if (begins_as_journal(fd))
		r = load_journal(fd, gm_image_alive(fd) != 0, ret);	/* unknown: as if alive */
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
	r = gm_attach((pid_t)pid, &attached);
	if (r) {
		refuse(ret, "process %ld: %s", pid, gm_attach_explain(r));
		return r;
	}
	r = load_journal(attached.fd, true, ret);
	close(attached.fd);
	return r;
}

int gm_load(const char *word, struct gm_loaded *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!strcmp(word, "-"))
		r = load_json(STDIN_FILENO, ret);
	else
		r = load_file(word, ret);
	if (r == -ENOENT && word[0] >= '0' && word[0] <= '9')
		r = load_process(word, ret);
	if (r && !ret->error[0])
		snprintf(ret->error, sizeof(ret->error), "%s", strerror(-r));
	return r;
}

void gm_load_free(struct gm_loaded *loaded)
{
	json_decref(loaded->root);
	gm_values_close(loaded->values);
	loaded->root = NULL;
	loaded->values = NULL;
	loaded->torch = NULL;
}

int64_t gm_json_number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

const char *gm_json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

const json_t *gm_json_list(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_array(value) ? value : NULL;
}

const json_t *gm_json_object(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_object(value) ? value : NULL;
}
