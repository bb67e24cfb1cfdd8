/*
 * init.c - load the library (which does next to nothing) and start it, at the first hooked CUDA call of a
 * process: options, journal, modules, helper thread, triggers.
 *
 * Thread context: the loader's; then one thread, in its first hook. Signal context: none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/triggers/trigger.h"
#include "preload/driver/real.h"
#include "preload/process/state.h"
#include "preload/api/history.h"
#include "preload/cache/cache.h"
#include "preload/process/say.h"
#include "preload/pools/pools.h"
#include "recorder/modules/modules.h"
#include "recorder/python/python.h"
#include "recorder/journal/recorder.h"
#include "recorder/stacks/stacks.h"
#include "recorder/modules/names.h"

/* Buffers for the start; too large for the stack of a host's thread. */
struct scratch {
	struct gm_recorder_report report;
	struct gm_recorder_setting settings[GM_OPTION_COUNT + 1];
	char values[GM_OPTION_COUNT * 64 + 4 * GM_TEXT_BYTES];
	char output[GM_TEXT_BYTES];
};

/* When the library is loaded, find the functions that may be needed where nothing can be looked up any more (_exit
 * in a signal handler), and remember the file of stderr. Opens no file, makes no thread, calls no CUDA. */
static __attribute__((constructor)) void loaded(void)
{
	gm_libc_find();
	gm_say_remember();
	gm_helper_loaded();
	gm_follow_loaded();
	pthread_atfork(NULL, NULL, gm_lock_forked);
}

static void said(void *arg, const char *line)
{
	(void)arg;
	gm_say(line);
}

/* Return the rank of this process, from the variables of launchers; -1: none. */
static int32_t rank_of_process(void)
{
	static const char *const names[] = {
		"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
		"SLURM_PROCID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = secure_getenv(names[i]);
		char *end;
		long rank;

		if (!text || !*text)
			continue;
		rank = strtol(text, &end, 10);
		if (!*end && rank >= 0 && rank <= INT32_MAX)
			return (int32_t)rank;
	}
	return -1;
}

/* Make @output absolute, from the current directory. A path that would be too long stays relative. */
static void make_absolute(const char *output, char ret[GM_TEXT_BYTES])
{
	size_t length, rest = strlen(output);

	ret[0] = '\0';
	if (output[0] != '/' && getcwd(ret, GM_TEXT_BYTES) && ret[0] == '/') {
		length = strlen(ret);
		if (length + 1 + rest < GM_TEXT_BYTES) {
			if (length > 1)
				ret[length++] = '/';
			memcpy(ret + length, output, rest + 1);
			return;
		}
	}
	memcpy(ret, output, rest + 1);
}

/* Return the options of PyTorch's own allocator, which PyTorch's snapshots repeat. */
static const char *torch_conf(void)
{
	const char *text = secure_getenv("PYTORCH_CUDA_ALLOC_CONF");

	if (!text)
		text = secure_getenv("PYTORCH_ALLOC_CONF");
	return text ? text : "";
}

static unsigned int settings_of(const struct gm_options *options, struct scratch *scratch)
{
	size_t used = 0;

	for (unsigned int id = 0; id < GM_OPTION_COUNT; id++) {
		char *value = scratch->values + used;
		size_t length = gm_options_format(options, id, value,
						  sizeof(scratch->values) - used);

		used += length + 1 < sizeof(scratch->values) - used ? length + 1 : 0;
		scratch->settings[id].name = gm_options_name(id);
		scratch->settings[id].value = value;
		scratch->settings[id].source = gm_options_source(options, id);
		if (options->verbose)
			gm_say_always(gm_options_name(id), "=", value, " (",
				      gm_options_source(options, id), ")");
	}
	scratch->settings[GM_OPTION_COUNT] = (struct gm_recorder_setting){
		GM_SETTING_TORCH, torch_conf(), "environment"
	};
	return GM_OPTION_COUNT + 1;
}

/* publish of struct gm_module_sink: the journal assigns the numbers. */
static uint16_t publish_module(const struct gm_module_info *info)
{
	uint16_t module = gm_publish_module(info->base, info->start, info->end, info->path,
					    info->build_id, info->build_id_bytes);

	gm_writers_module(module, info->path);
	gm_libc10_loaded(info->path);
	return module;
}

/* The range of our own code, from the linker: stacks begin with the caller of that code. */
extern const char __ehdr_start[] GM_HIDDEN, _end[] GM_HIDDEN;

/* Print a line about an interpreter whose frames cannot be read. Any thread. */
static void python_said(const char *line)
{
	gm_say(line);
}

/* Start the cache. If it cannot start, every call goes to the driver, as with allocator:native. */
static void start_cache(void)
{
	int r = gm_cache_start();

	if (r)
		gm_say("allocator:native, since the cache cannot start: ", gm_error_text(r));
	else
		gm_context_trust();
}

/* Start all that hooks need before the first body continues. The journal records already. */
static int start_hooks(void)
{
	int version;

	gm_pointers = gm_map_new(false);
	if (!gm_pointers)
		return -ENOMEM;
	if (!GM_REAL(cuDriverGetVersion)(&version))
		gm_record_driver_version(version);
	if (gm_state.options.allocator == GM_ALLOCATOR_CACHING)
		start_cache();
	/* Watch in this order: at the end of a context the cache's heaps end first, then the pieces of pools, then
	 * the records of the remaining memory. */
	gm_context_watch(&gm_pools_of_contexts);
	gm_context_watch(&gm_record_of_contexts);
	gm_hooks_of_work(gm_cache_on());
	return 0;
}

static int start_recorder(struct scratch *scratch)
{
	struct gm_options *options = &gm_state.options;
	struct gm_recorder_config config = {
		.place = options->journal,
		.history_events = options->history,
		.output = scratch->output,
		.version = GPUMEM_VERSION,
		.rank = rank_of_process(),
		.settings = scratch->settings,
	};
	const struct gm_module_sink sink = { .publish = publish_module,
					     .unloaded = gm_module_unloaded,
					     .loaded_again = gm_module_loaded_again };
	int r;

	gm_history_config(options, &config);
	make_absolute(options->output, scratch->output);
	config.settings_count = settings_of(options, scratch);
	r = gm_recorder_start(&config, &scratch->report);
	if (r) {
		gm_say("nothing is recorded: ",
		       scratch->report.note[0] ? scratch->report.note : gm_error_text(r));
		return r;
	}
	if (scratch->report.note[0])
		gm_say(scratch->report.note);
	memcpy(gm_state.journal, scratch->report.path, sizeof(gm_state.journal));
	gm_state.journal[sizeof(gm_state.journal) - 1] = '\0';
	gm_modules_init(&sink);
	gm_stacks_init((uintptr_t)__ehdr_start, (uintptr_t)_end);
	gm_python_init(python_said);
	gm_history_start();
	r = start_hooks();
	if (r)
		gm_say("nothing is recorded: ", gm_error_text(r));
	return r;
}

/* Choose allocator:native under a memory debugger. The debugger sees only the driver's allocations, so blocks of the
 * cache within these would hide the errors that it looks for. */
static void choose_allocator(struct gm_options *options)
{
	const char *debugger;

	if (options->allocator == GM_ALLOCATOR_NATIVE)
		return;
	debugger = gm_debugger();
	if (!debugger)
		return;
	gm_say("allocator:native, since ", debugger, " is here: memory cut from larger pieces would "
	       "blind it");
	options->allocator = GM_ALLOCATOR_NATIVE;
	options->source[GM_OPTION_allocator] = GM_SOURCE_LIBRARY;
}

int gm_init(void)
{
	struct gm_options *options = &gm_state.options;
	struct scratch *scratch;
	int r;

	if (gm_follow_ends_here())
		return -ECANCELED;
	/* With raised privileges we would write files in the name of another user, to a path from the caller's
	 * environment. */
	if (getauxval(AT_SECURE)) {
		gm_say("nothing is recorded: the program runs with raised privileges "
		       "(set-user-ID, set-group-ID or file capabilities)");
		return -EPERM;
	}
	gm_options_read(options, environ, said, NULL);
	if (options->allocator == GM_ALLOCATOR_CACHING)
		choose_allocator(options);
	scratch = mmap(NULL, sizeof(*scratch), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (scratch == MAP_FAILED) {
		gm_say("nothing is recorded: out of memory");
		return -ENOMEM;
	}
	r = start_recorder(scratch);
	munmap(scratch, sizeof(*scratch));
	if (r)
		return r;
	if (!options->follow)
		gm_follow_stop();
	r = gm_helper_start();
	if (r)
		gm_say("there is no helper thread (", gm_error_text(r), "): snapshots by signal "
		       "and from outside are off, the others are written by the program's own "
		       "threads");
	else if (options->snapshot_on & GM_ON_SIGNAL)
		gm_trigger_take_signal(options->signal);
	if (options->snapshot_on & GM_ON_CRASH)
		gm_crash_start();
	gm_bus_start();
	gm_exit_start();
	gm_ranges_begin();
	return 0;
}
