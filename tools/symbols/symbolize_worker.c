/*
 * symbolize_worker.c - the child process that finds names, and the pipe to its parent: see symbols.h. One thread.
 *
 * The child sends records, each a struct record and its two strings. The parent checks every length and number in
 * them.
 */
#define _GNU_SOURCE
#include "tools/symbols/symbols.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/modules/elf_file.h"
#include "tools/read/input.h"
#include "tools/read/snapshot.h"

#define CPU_SECONDS 120u		/* of one child */
#define DATA_MOST (UINT64_C(16) << 30)
#define TEXT_MOST 16384u

enum kind { RECORD_BEGIN = 1, RECORD_LEVEL, RECORD_END, RECORD_ALL };

struct record {
	uint32_t kind;
	uint32_t number;		/* frame, or module */
	uint32_t line, inlined;
	uint32_t name_bytes, file_bytes;
};

/* The request, divided by module. */
struct job {
	const struct gm_sym_request *request;
	struct gm_sym_module *modules;
	size_t count;
};

static const struct gm_level none = { "", "", 0, false };

/* ---- the child --------------------------------------------------------------------------------- */

static size_t cut(const char *text)
{
	return strnlen(text, TEXT_MOST);
}

static void put(FILE *out, enum kind kind, uint32_t number, const struct gm_level *level)
{
	struct record record = { .kind = kind, .number = number, .line = level->line,
				 .inlined = level->inlined,
				 .name_bytes = (uint32_t)cut(level->name),
				 .file_bytes = (uint32_t)cut(level->file) };

	if (fwrite(&record, sizeof(record), 1, out) != 1 ||
	    fwrite(level->name, 1, record.name_bytes, out) != record.name_bytes ||
	    fwrite(level->file, 1, record.file_bytes, out) != record.file_bytes)
		_exit(1);
}

struct module {
	const struct gm_sym_module *module;
	FILE *out;
	const struct gm_debug_file *symbols;
	struct gm_elf_match *matches;	/* by frame: its symbol; NULL: not looked for */
	bool *found;			/* by frame: does DWARF have it? */
	bool any;			/* DWARF has one of the frames */
};

/* Return an address within the call instruction: the frame's offset, a return address, is the one after it. */
static uint64_t address_of(const struct gm_sym_frame *frame)
{
	return frame->offset ? frame->offset - 1 : 0;
}

static struct gm_elf_match *find_symbols(const struct gm_sym_module *module,
					 const struct gm_elf_file *elf)
{
	struct gm_elf_scan scan = { .count = module->count };

	scan.matches = calloc(module->count, sizeof(*scan.matches));
	scan.window = malloc(GM_ELF_WINDOW * sizeof(*scan.window));
	for (size_t i = 0; scan.matches && i < module->count; i++)
		scan.matches[i].address = address_of(&module->frames[i]);
	if (scan.matches && scan.window)
		gm_elf_scan(elf, &scan, UINT64_MAX);
	free(scan.window);
	return scan.matches;
}

/* Return the symbol of frame @i's function: the symbol table's, in a static buffer, else the recorded one; "": none. */
static const char *symbol_of(const struct module *m, size_t i)
{
	static char name[TEXT_MOST];

	if (m->matches && gm_elf_name(&m->symbols->elf, gm_elf_match_name(&m->matches[i]), name,
				      sizeof(name)))
		return name;
	return m->module->frames[i].name;
}

static void say(const struct module *m, size_t i, const char *symbol, const struct gm_level *level)
{
	const struct gm_level said = { gm_demangle(symbol), level->file, level->line, level->inlined };

	put(m->out, RECORD_LEVEL, m->module->frames[i].frame, &said);
}

static void found(void *arg, size_t i, const struct gm_level *levels, size_t count)
{
	struct module *m = arg;

	if (m->found[i])
		return;
	m->found[i] = m->any = true;
	for (size_t n = 0; n < count; n++) {
		const char *symbol = n + 1 == count ? symbol_of(m, i) : "";

		say(m, i, symbol[0] ? symbol : levels[n].name, &levels[n]);
	}
}

/* Send the levels of all frames from DWARF. Return "", or what is missing. */
static const char *lines(struct module *m, const struct gm_sym_request *request,
			 const struct gm_debug_file *file)
{
	struct gm_dwarf_request ask = { .count = m->module->count, .inlines = request->inlines,
					.found = found, .arg = m };
	uint64_t *addresses = malloc(ask.count * sizeof(*addresses));
	const char *why;

	m->found = calloc(ask.count, sizeof(*m->found));
	if (!addresses || !m->found) {
		free(addresses);
		return "out of memory";
	}
	for (size_t i = 0; i < ask.count; i++)
		addresses[i] = address_of(&m->module->frames[i]);
	ask.addresses = addresses;
	why = gm_dwarf_resolve(request->places, file, &ask);
	free(addresses);
	if (!why && !m->any)
		why = "its debug information has no line for these addresses";
	return why ? why : "";
}

static bool all_named(const struct gm_sym_module *module)
{
	for (size_t i = 0; i < module->count; i++)
		if (!module->frames[i].name[0])
			return false;
	return true;
}

/* Send names and levels of one module's frames. Return "", or what is missing.
 *
 * The name of a function that is not inlined is the symbol table's, which knows clones and parts; else the recorded
 * one; else DWARF's. The name of an inlined function is DWARF's. */
static const char *resolve(const struct gm_sym_request *request, const struct gm_sym_module *module,
			   bool dwarf, FILE *out)
{
	struct module m = { .module = module, .out = out };
	struct gm_debug_files files = { .symbols.elf.fd = -1, .dwarf.elf.fd = -1 };
	struct gm_build_id id;
	const char *why = "";

	if (!gm_build_id_parse(module->build_id, &id)) {
		why = "it has no build id to find its file by";
	} else {
		gm_debug_files_find(request->places, module->path, &id, &files);
		if (files.symbols.elf.fd >= 0 && !(request->keep_names && all_named(module))) {
			m.symbols = &files.symbols;
			m.matches = find_symbols(module, &files.symbols.elf);
		}
		if (files.symbols.elf.fd < 0 && files.dwarf.elf.fd < 0)
			why = "no file with its build id";
		else if (files.dwarf.elf.fd < 0)
			why = GM_NO_DEBUG;
		else if (!dwarf)
			why = "its debug information could not be digested";
		else
			why = lines(&m, request, &files.dwarf);
	}
	for (size_t i = 0; i < module->count; i++) {
		const char *symbol = m.found && m.found[i] ? "" : symbol_of(&m, i);

		if (symbol[0] && (!request->keep_names || !module->frames[i].name[0]))
			say(&m, i, symbol, &none);
	}
	free(m.matches);
	free(m.found);
	gm_debug_files_close(&files);
	return why;
}

static void limit(__rlimit_resource_t what, rlim_t most)
{
	struct rlimit now;

	if (!getrlimit(what, &now) && (now.rlim_max == RLIM_INFINITY || now.rlim_max > most))
		setrlimit(what, &(struct rlimit){ most, most });
}

static __attribute__((noreturn)) void work(const struct job *job, size_t first, bool dwarf, int fd)
{
	const struct gm_sym_request *request = job->request;
	FILE *out = fdopen(fd, "w");

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_CPU, request->cpu_seconds ? request->cpu_seconds : CPU_SECONDS);
#ifndef __SANITIZE_ADDRESS__			/* AddressSanitizer needs more for itself */
	limit(RLIMIT_DATA, DATA_MOST);
#endif
	for (size_t i = first; out && i < job->count; i++, dwarf = true) {
		struct gm_level end = none;

		put(out, RECORD_BEGIN, (uint32_t)i, &none);
		fflush(out);			/* the parent must know the module if this one kills us */
		end.name = resolve(request, &job->modules[i], dwarf, out);
		put(out, RECORD_END, (uint32_t)i, &end);
	}
	if (out)
		put(out, RECORD_ALL, 0, &none);
	_exit(out && !fflush(out) ? 0 : 1);
}

/* ---- the parent -------------------------------------------------------------------------------- */

struct progress {
	size_t module;			/* the first module that is not done */
	bool all;
};

static void done(const struct job *job, size_t module, const char *why)
{
	if (job->request->done)
		job->request->done(job->request->arg, &job->modules[module], module + 1, job->count, why);
}

static bool get(FILE *in, void *to, size_t bytes)
{
	return fread(to, 1, bytes, in) == bytes;
}

/* Take one record. Return false at the end, and if the record is invalid. */
static bool take(FILE *in, const struct job *job, struct progress *progress)
{
	static char name[TEXT_MOST + 1], file[TEXT_MOST + 1];
	struct gm_level level = { .name = name, .file = file };
	struct record record;

	if (!get(in, &record, sizeof(record)) || record.name_bytes > TEXT_MOST ||
	    record.file_bytes > TEXT_MOST || !get(in, name, record.name_bytes) ||
	    !get(in, file, record.file_bytes))
		return false;
	name[record.name_bytes] = file[record.file_bytes] = '\0';
	level.line = record.line;
	level.inlined = record.inlined != 0;
	switch (record.kind) {
	case RECORD_BEGIN:
		/* Modules come in order; anything else is invalid. */
		if (record.number >= job->count || record.number < progress->module)
			return false;
		progress->module = record.number;
		return true;
	case RECORD_LEVEL:
		job->request->level(job->request->arg, record.number, &level);
		return true;
	case RECORD_END:
		if (record.number != progress->module)
			return false;
		done(job, progress->module++, name);
		return true;
	default:
		progress->all = record.kind == RECORD_ALL;
		return false;
	}
}

/* Let one child work from progress->module on, at first without DWARF unless @dwarf. Return 0 or -errno. */
static int run(const struct job *job, bool dwarf, struct progress *progress)
{
	int ends[2], status;
	pid_t child;
	FILE *in;

	if (pipe(ends))
		return -errno;
	fflush(NULL);
	child = fork();
	if (child < 0) {
		int error = errno;

		close(ends[0]);
		close(ends[1]);
		return -error;
	}
	if (!child) {
		close(ends[0]);
		gm_limit_lift();		/* debug information may have any size, and is no part of the input */
		work(job, progress->module, dwarf, ends[1]);
	}
	close(ends[1]);
	in = fdopen(ends[0], "r");
	while (in && take(in, job, progress))
		;
	/* The child is done, dead, or sent an invalid record. */
	kill(child, SIGKILL);
	if (in)
		fclose(in);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static int run_all(const struct job *job)
{
	struct progress progress = { 0 };
	bool dwarf = true;

	while (progress.module < job->count && !progress.all) {
		size_t tried = progress.module;
		int r = run(job, dwarf, &progress);

		if (r)
			return r;
		if (progress.all || progress.module >= job->count)
			break;
		if (progress.module != tried || dwarf) {
			dwarf = false;		/* try the module that killed the child once more */
			continue;
		}
		done(job, progress.module++, "its files could not be digested");
		dwarf = true;
	}
	return 0;
}

static int by_module_and_offset(const void *a, const void *b)
{
	const struct gm_sym_frame *x = a, *y = b;

	if (x->module != y->module)
		return x->module < y->module ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int gm_symbolize(const struct gm_sym_request *request)
{
	struct job job = { .request = request };
	struct gm_sym_frame *frames = request->frames;
	int r;

	if (!request->frame_count)
		return 0;
	job.modules = calloc(request->frame_count, sizeof(*job.modules));
	if (!job.modules)
		return -ENOMEM;
	qsort(frames, request->frame_count, sizeof(*frames), by_module_and_offset);
	for (size_t i = 0; i < request->frame_count; i++) {
		const json_t *module = json_array_get(request->modules, frames[i].module);

		if (!i || frames[i].module != frames[i - 1].module)
			job.modules[job.count++] = (struct gm_sym_module){
				gm_json_text(module, "path"), gm_json_text(module, "build_id"), &frames[i], 0
			};
		job.modules[job.count - 1].count++;
	}
	r = run_all(&job);
	free(job.modules);
	return r;
}
