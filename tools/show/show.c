/*
 * show.c - text for people: see show.h.
 */
#define _GNU_SOURCE
#include "tools/show/show.h"

#include <errno.h>
#include <math.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/read/snapshot.h"
#include "tools/read/value.h"
#include "tools/write/writer.h"

char *gm_show_repair(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at;) {
		size_t bytes = gm_value_letter(at, SIZE_MAX);

		if (!bytes)
			*at = '?';
		at += bytes ? bytes : 1;
	}
	return text;
}

/* Copy @text into @room bytes, as gm_show_clean has it. */
static const char *clean(char *to, size_t room, const char *text)
{
	size_t n = 0;

	while (n < room - 1 && text[n]) {
		size_t bad = gm_show_control(text + n);

		if (!bad) {
			to[n] = text[n];
			n++;
		}
		for (; bad && n < room - 1; bad--)
			to[n++] = '?';
	}
	to[n] = '\0';
	return gm_show_repair(to);
}

const char *gm_show_clean(const char *text)
{
	static char texts[4][1024];
	static unsigned int next;

	return clean(texts[next++ % 4], sizeof(texts[0]), text);
}

const char *gm_show_path(const char *path)
{
	static char text[4096];

	return clean(text, sizeof(text), path);
}

/* Some document could not be made, because memory was short or a text was not UTF-8. An empty line would look like a
 * result, so gm_show_finish reports it. */
static bool no_document;
static int write_errno;			/* why a document could not be written; 0: all were */

void gm_show_document(FILE *out, json_t *json, unsigned int indent)
{
	struct gm_writer *writer = json ? gm_writer_open(out, false) : NULL;
	int r = -ENOMEM;

	if (writer) {
		gm_writer_indent(writer, indent);
		gm_writer_put(writer, json);
		r = gm_writer_close(writer);
	}
	if (r && ferror(out))
		write_errno = -r;
	else if (r)
		no_document = true;
	json_decref(json);
}

const char *gm_show_cut(const char *text, size_t bytes)
{
	char *cut = (char *)(uintptr_t)gm_show_clean(text);
	size_t length = strlen(cut);

	if (length > bytes) {
		while (bytes && ((unsigned char)cut[bytes] & 0xc0) == 0x80)
			bytes--;
		cut[bytes] = '\0';
	}
	return cut;
}

const char *gm_show_time(int64_t time_us)
{
	static char text[64];
	time_t seconds = (time_t)(time_us / 1000000);
	struct tm tm;

	text[0] = '\0';
	if (time_us > 0 && gmtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm);
	return text;
}

const char *gm_show_bytes(int64_t bytes)
{
	static char texts[4][40];
	static unsigned int next;
	char *at = texts[next++ % 4];

	at[0] = '-';
	gm_units_bytes(bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes, at + (bytes < 0),
		       sizeof(texts[0]) - 1);
	return at;
}

const char *gm_show_count(int64_t count, const char *one)
{
	static char texts[4][48];
	static unsigned int next;
	char *at = texts[next++ % 4];

	snprintf(at, sizeof(texts[0]), "%" PRId64 " %s%s", count, one, count == 1 ? "" : "s");
	return at;
}

const char *gm_show_module_path(const json_t *root, int64_t module)
{
	const json_t *entry = module > 0 ? json_array_get(gm_json_list(root, "modules"),
							  (size_t)module) : NULL;

	return gm_json_text(entry, "path");
}

const char *gm_show_module(const json_t *root, int64_t module)
{
	const char *path = gm_show_module_path(root, module);

	return !path[0] ? "(unknown)" : gm_show_clean(basename(path));
}

const char *gm_show_device(const json_t *object)
{
	static char text[32];
	const json_t *device = json_object_get(object, "device");

	snprintf(text, sizeof(text), json_is_integer(device) ? "device %lld" : "the host",
		 (long long)json_integer_value(device));
	return text;
}

/* Return the statistic @key, or @otherwise if the snapshot (of an old PyTorch) has no @key. */
static int64_t asked_for(const json_t *stats, const char *key, const char *otherwise)
{
	return gm_json_number(stats, json_object_get(stats, key) ? key : otherwise);
}

bool gm_show_is_device(const char *device, int64_t number)
{
	return !device || (strcmp(device, "host") && strtol(device, NULL, 10) == number);
}

static void add_totals(struct gm_totals *all, const json_t *stats)
{
	all->live = gm_wrap_add(all->live, asked_for(stats, "requested_bytes.all.current",
						     "allocated_bytes.all.current"));
	all->peak = gm_wrap_add(all->peak, asked_for(stats, "requested_bytes.all.peak", "allocated_bytes.all.peak"));
	all->reserved_peak = gm_wrap_add(all->reserved_peak, gm_json_number(stats, "reserved_bytes.all.peak"));
	all->blocks = gm_wrap_add(all->blocks, gm_json_number(stats, "allocation.all.current"));
	all->ooms = gm_wrap_add(all->ooms, gm_json_number(stats, "num_ooms"));
}

struct gm_totals gm_show_totals(const json_t *root, const char *device)
{
	const json_t *host = gm_json_object(gm_json_object(root, "host"), "memory_stats"), *one;
	struct gm_totals all = { 0 };
	size_t i;

	json_array_foreach(gm_json_list(root, "devices"), i, one)
		if (gm_show_is_device(device, gm_json_number(one, "device")))
			add_totals(&all, gm_json_object(one, "memory_stats"));
	if (device && !strcmp(device, "host"))
		add_totals(&all, host);
	else if (!device)
		all.ooms = gm_wrap_add(all.ooms, gm_json_number(host, "num_ooms"));
	return all;
}

void gm_show_op(FILE *out, const struct gm_show_op *op)
{
	const char *what = !strcmp(op->action, "alloc") ? "an allocation" :
			   !strncmp(op->action, "free", 4) ? "a free" : gm_show_clean(op->action);

	char address[40] = "";

	if (op->address)
		snprintf(address, sizeof(address), " at %#llx", (unsigned long long)op->address);
	gm_show_line(out, "    ", "  in flight in thread %lld: %s of %s%s%s memory on %s%s%s", (long long)op->thread,
		     what, op->size ? gm_show_bytes(op->size) : "", op->size ? " of " : "", gm_show_clean(op->kind),
		     op->device, address, op->took_effect ? " (the driver had carried it out)" : "");
}

bool gm_show_in_color(FILE *out)
{
	const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(fileno(out)) && !(none && *none) && term && strcmp(term, "dumb");
}

size_t gm_show_columns(FILE *out)
{
	struct winsize size;

	if (!isatty(fileno(out)))
		return SIZE_MAX;
	return ioctl(fileno(out), TIOCGWINSZ, &size) || size.ws_col < 40 ? 80 : size.ws_col;
}

void gm_show_heading(FILE *out, const char *format, ...)
{
	bool color = gm_show_in_color(out);
	va_list args;

	va_start(args, format);
	fputs(color ? "\033[1m" : "", out);
	vfprintf(out, format, args);
	fputs(color ? "\033[0m\n" : "\n", out);
	va_end(args);
}

/* ---- units ------------------------------------------------------------------------------------------ */

void gm_units_bytes(uint64_t bytes, char *ret, size_t room)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned __int128 hundredths = (unsigned __int128)bytes * 100;
	unsigned int u = 0, shift = 10;

	if (bytes < 1024) {
		snprintf(ret, room, "%llu B", (unsigned long long)bytes);
		return;
	}
	for (; bytes >> shift >= 1024; shift += 10)
		u++;
	/* Round a half to even, as %.2f does, in a third of its time. */
	hundredths += (UINT64_C(1) << (shift - 1)) - 1 + (uint64_t)(hundredths >> shift & 1);
	hundredths >>= shift;
	snprintf(ret, room, "%llu.%02llu %s", (unsigned long long)(hundredths / 100),
		 (unsigned long long)(hundredths % 100), units[u]);
}

int gm_units_parse(const char *text, uint64_t *ret)
{
	static const char letters[] = "KMGTPE";
	char *end;
	double value = strtod(text, &end);
	double unit = 1;

	if (end == text || !(value >= 0))	/* not "nan" either */
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

int gm_units_time(const char *text, double *ret)
{
	static const struct { const char *name; double seconds; } units[] = {
		{ "", 1 }, { "s", 1 }, { "ms", 1e-3 }, { "us", 1e-6 }, { "min", 60 }, { "h", 3600 },
	};
	char *end;
	double time = strtod(text, &end);

	if (end == text)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(end, units[i].name)) {
			time *= units[i].seconds;
			if (!isfinite(time) || time <= -1e12 || time >= 1e18)
				return -EINVAL;
			*ret = time;
			return 0;
		}
	return -EINVAL;
}

int64_t gm_show_origin(const struct gm_snapshot *snapshot)
{
	int64_t start = gm_json_number(gm_json_object(snapshot->root, "process"), "start_time_us");

	return start > 0 || !snapshot->row_count ? start : snapshot->rows[0].time_us;
}

int64_t gm_show_newest(const struct gm_snapshot *snapshot)
{
	int64_t end = snapshot->row_count ? snapshot->rows[snapshot->row_count - 1].time_us :
					    gm_show_origin(snapshot);

	for (size_t i = 0; i < snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[i];

		if (pool->row_count && pool->rows[pool->row_count - 1].time_us > end)
			end = pool->rows[pool->row_count - 1].time_us;
	}
	return end;
}

int64_t gm_show_moment(const struct gm_snapshot *snapshot, double time)
{
	if (time >= 1e12)
		return (int64_t)time;
	return gm_wrap_add((int64_t)(time * 1e6 + (time < 0 ? -0.5 : 0.5)),
			   time < 0 ? gm_show_newest(snapshot) : gm_show_origin(snapshot));
}

int gm_units_seconds(const char *text, double least, double most, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end != text && !*end && *ret >= least && *ret <= most ? 0 : -EINVAL;
}

void gm_show_line(FILE *out, const char *next, const char *format, ...)
{
	char *text;
	va_list args;
	int length;

	va_start(args, format);
	length = vasprintf(&text, format, args);
	va_end(args);
	if (length < 0)
		return;
	gm_show_wrapped(out, text, 0, next, gm_show_columns(out));
	free(text);
}

/* ---- frames that did not ask for memory ------------------------------------------------------------ */

bool gm_frame_is_plumbing(const char *name, const char *module)
{
	static const char *const names[] = { "torch::unwind::",
					     "torch::CapturedTraceback::",
					     "torch::cuda::(anonymous namespace)::gather",
					     "c10::cuda::CUDACachingAllocator",
					     "_ZN3c104cuda20CUDACachingAllocator",
					     "_ZNK3c104cuda20CUDACachingAllocator",
					     "libcudart_static_",	/* nvcc's default runtime, in the program */
					     "nvtxMem" };	/* of NVTX's header, in the caller's module */
	static const char *const modules[] = { "libcudart", "libcuda.", "libgpumem",
					       "libc10_cuda." };

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (!strncmp(module, modules[i], strlen(modules[i])))
			return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return !strncmp(name, "cuda", 4) && name[4] >= 'A' && name[4] <= 'Z';
}

bool gm_frame_is_backward(const char *name, const char **ret_name, int *ret_length)
{
	static const char prefix[] = "torch::autograd::generated::";
	const char *end = strncmp(name, prefix, sizeof(prefix) - 1) ? NULL : strstr(name, "::apply(");

	*ret_name = name + sizeof(prefix) - 1;
	if (!end || end - *ret_name <= 0 || end - *ret_name > 200 ||
	    memchr(*ret_name, ':', (size_t)(end - *ret_name)))
		return false;
	*ret_length = (int)(end - *ret_name);
	return true;
}

bool gm_frame_is_installed(const char *file)
{
	return strstr(file, "-packages/") || strstr(file, "/lib/python3.") || strstr(file, "/lib64/python3.") ||
	       file[0] == '<' || strstr(file, "/tools/python/gpumem/");	/* our own package, in a source tree */
}

static bool ends(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);

	return length >= tail && !strcmp(text + length - tail, end);
}

bool gm_frame_is_runner(const char *file)
{
	static const char *const parts[] = { "/_pytest/", "-packages/pytest/", "-packages/pytest_", "-packages/pluggy/",
					     "-packages/xdist/", "-packages/execnet/", "/gpumem/pytest_plugin.py" };
	const char *library = strstr(file, "/lib/python3.");

	library = library ? library : strstr(file, "/lib64/python3.");
	library = library ? strchr(library + strlen("/lib/python3."), '/') : NULL;
	if (library && (!strncmp(library, "/unittest/", 10) || !strcmp(library, "/runpy.py")))
		return true;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strstr(file, parts[i]))
			return true;
	return !strncmp(file, "<frozen ", 8) || ends(file, "/bin/pytest") || ends(file, "/bin/py.test");
}

/* ---- progress ------------------------------------------------------------------------------------- */

static double began, drawn;
static bool shown;

double gm_show_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void gm_progress(const char *what, size_t done, size_t all)
{
	double at = gm_show_now();

	if (began <= 0)
		began = at;
	if (at - began < 1 || at - drawn < 0.2 || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%s: %zu of %zu\033[K", what, done, all);
	drawn = at;
	shown = true;
}

void gm_progress_end(void)
{
	if (shown)
		fputs("\r\033[K", stderr);
	shown = false;
	began = drawn = 0;
}

unsigned int gm_show_wrapped(FILE *out, const char *text, int column, const char *next, size_t width)
{
	unsigned int lines = 1;

	for (bool first = true; *text; first = false) {
		int gap = (int)strspn(text, " "), word = (int)strcspn(text + gap, " "), wide = 0;

		for (int i = 0; i < word; i++)			/* characters, not bytes */
			wide += ((unsigned char)text[gap + i] & 0xc0) != 0x80;
		if (!first && (size_t)(column + gap + wide) > width) {
			fprintf(out, "\n%s", next);
			text += gap;
			column = (int)strlen(next);
			gap = 0;
			lines++;
		}
		fprintf(out, "%.*s", gap + word, text);
		column += gap + wide;
		text += gap + word;
	}
	putc('\n', out);
	return lines;
}

int gm_show_finish(const char *verb, int status)
{
	if (no_document) {
		fprintf(stderr, "gpumem %s: no result could be made: not enough memory, or text that is not UTF-8\n",
			verb);
		return GM_EXIT_FAILED;
	}
	if (!write_errno && !fflush(stdout) && !ferror(stdout))
		return status;
	fprintf(stderr, "gpumem %s: the output could not be written: %s\n", verb,
		strerror(write_errno ? write_errno : errno));
	return GM_EXIT_FAILED;
}
