/*
 * nvtx.c - the tool's side of NVTX: see nvtx.h.
 *
 * Every library that uses NVTX has a copy of its own, with a table of functions of its own: each
 * copy calls InitializeInjectionNvtx2 once, at its first use. Pushes and pops answer that nobody
 * keeps their levels, as NVTX does without a tool, so that the program goes on as without us.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "preload/order/context.h"
#include "preload/api/nvtx.h"
#include "recorder/record/annotations.h"

#define NO_PUSH_POP_TRACKING (-2)	/* NVTX_NO_PUSH_POP_TRACKING */

_Static_assert(sizeof(struct gm_nvtx_attributes) == 48 &&
	       offsetof(struct gm_nvtx_attributes, message) == 40, "as NVTX 3 has it");

/* ---- how NVTX finds us --------------------------------------------------------------------------
 *
 * It asks for NVTX_INJECTION64_PATH, at the first use in a library, and loads what that names.
 * Setting the variable would show: in what a program prints of its environment, and in children
 * that have no preload, which would load us for nothing. So the question is answered instead: our
 * getenv is the real one, but for that name, and only when the variable is not there. A profiler
 * that wants NVTX for itself sets it, and keeps it.
 */

GM_PUBLIC char *getenv(const char *name);

/* What option nvtx says. Asked before the first CUDA call, most times; what is wrong with the options is
 * said at that call. */
static bool is_wanted(void)
{
	static _Atomic(uint32_t) answer;	/* 0 not known; 1 no; 2 yes */
	uint32_t known = gm_get(&answer);
	struct gm_options options;

	if (!known && getauxval(AT_SECURE)) {
		known = 1;
	} else if (!known) {
		gm_options_read(&options, environ, NULL, NULL);
		known = options.nvtx ? 2 : 1;
	}
	gm_set(&answer, known);
	return known == 2;
}

/* We are loaded already: NVTX gets another reference to what it names by this very name. */
static char *our_path(void)
{
	Dl_info info;

	if (!is_wanted() || !dladdr((const void *)our_path, &info) || !info.dli_fname ||
	    !strchr(info.dli_fname, '/'))
		return NULL;
	return (char *)(uintptr_t)info.dli_fname;
}

/* Before we are set up: a constructor of another library asks. */
static char *find_variable(const char *name)
{
	size_t length = strlen(name);

	for (char **at = environ; at && *at; at++)
		if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
			return *at + length + 1;
	return NULL;
}

char *getenv(const char *name)
{
	char *value = gm_libc.getenv ? gm_libc.getenv(name) : find_variable(name);

	if (__builtin_expect(value || name[0] != 'N' || strcmp(name, "NVTX_INJECTION64_PATH"), 1))
		return value;
	return our_path();
}

/* ---- what it calls ---- */

typedef const struct gm_nvtx_text *handle;
typedef const struct gm_nvtx_attributes *event;

/* Is there a record to write into? A word, and getpid() only where a child cannot be told. */
static inline bool recording(void)
{
	uint32_t word = gm_state_word();

	return word == GM_STATE_RUNNING ||
	       (word == GM_STATE_RUNNING_CHECKED && gm_state.pid == getpid());
}

static struct gm_annotation about(handle domain, uint32_t name)
{
	return (struct gm_annotation){
		.name = name, .scope_name = gm_nvtx_id(domain), .scope = gm_nvtx_scope(domain),
		.device = gm_where_last(),
	};
}

static void mark(handle domain, uint32_t name)
{
	const struct gm_annotation what = about(domain, name);

	gm_annotate_mark(&what);
}

static void push(handle domain, uint32_t name)
{
	const struct gm_annotation what = about(domain, name);

	gm_annotate_push(&what, what.scope);
}

static uint64_t start(handle domain, uint32_t name)
{
	const struct gm_annotation what = about(domain, name);

	return gm_annotate_start(&what);
}

/* ---- the functions of NVTX --------------------------------------------------------------------- */

static void domain_mark(handle domain, event attributes)
{
	if (recording())
		mark(domain, gm_nvtx_id_of_event(attributes));
}

static void mark_event(event attributes)
{
	domain_mark(NULL, attributes);
}

static void mark_ascii(const char *message)
{
	if (recording())
		mark(NULL, gm_nvtx_id_of(message));
}

static void mark_wide(const wchar_t *message)
{
	if (recording())
		mark(NULL, gm_nvtx_id_of_wide(message));
}

static uint64_t domain_start(handle domain, event attributes)
{
	return recording() ? start(domain, gm_nvtx_id_of_event(attributes)) : GM_RANGE_NONE;
}

static uint64_t start_event(event attributes)
{
	return domain_start(NULL, attributes);
}

static uint64_t start_ascii(const char *message)
{
	return recording() ? start(NULL, gm_nvtx_id_of(message)) : GM_RANGE_NONE;
}

static uint64_t start_wide(const wchar_t *message)
{
	return recording() ? start(NULL, gm_nvtx_id_of_wide(message)) : GM_RANGE_NONE;
}

static void domain_end(handle domain, uint64_t range)
{
	if (recording())
		gm_annotate_end(range, gm_nvtx_id(domain));
}

static void end(uint64_t range)
{
	domain_end(NULL, range);
}

static int domain_push(handle domain, event attributes)
{
	if (recording())
		push(domain, gm_nvtx_id_of_event(attributes));
	else
		gm_annotate_push(NULL, gm_nvtx_scope(domain));
	return NO_PUSH_POP_TRACKING;
}

static int push_event(event attributes)
{
	return domain_push(NULL, attributes);
}

static int push_ascii(const char *message)
{
	if (recording())
		push(NULL, gm_nvtx_id_of(message));
	else
		gm_annotate_push(NULL, 0);
	return NO_PUSH_POP_TRACKING;
}

static int push_wide(const wchar_t *message)
{
	if (recording())
		push(NULL, gm_nvtx_id_of_wide(message));
	else
		gm_annotate_push(NULL, 0);
	return NO_PUSH_POP_TRACKING;
}

static int domain_pop(handle domain)
{
	gm_annotate_pop(gm_nvtx_scope(domain), recording() ? gm_nvtx_id(domain) : GM_NONE);
	return NO_PUSH_POP_TRACKING;
}

static int pop(void)
{
	return domain_pop(NULL);
}

static handle register_string(handle domain, const char *text)
{
	(void)domain;
	return gm_nvtx_register(text);
}

static handle register_string_wide(handle domain, const wchar_t *text)
{
	(void)domain;
	return gm_nvtx_register_wide(text);
}

/* ---- attaching --------------------------------------------------------------------------------- */

enum { MODULE_CORE = 1, MODULE_CORE2 = 5 };	/* NvtxCallbackModule */
enum { TABLE_CALLBACKS = 1 };			/* NvtxExportTableID */

typedef void (*function)(void);

struct callbacks {			/* NvtxExportTableCallbacks */
	size_t struct_size;
	int (*module_table)(int module, function ***ret_table, unsigned int *ret_size);
};

/* NvtxCallbackIdCore, NvtxCallbackIdCore2: the place of a function in its module's table. */
static const struct { int module; unsigned int place; function function; } ours[] = {
	{ MODULE_CORE, 1, (function)mark_event }, { MODULE_CORE, 2, (function)mark_ascii },
	{ MODULE_CORE, 3, (function)mark_wide }, { MODULE_CORE, 4, (function)start_event },
	{ MODULE_CORE, 5, (function)start_ascii }, { MODULE_CORE, 6, (function)start_wide },
	{ MODULE_CORE, 7, (function)end }, { MODULE_CORE, 8, (function)push_event },
	{ MODULE_CORE, 9, (function)push_ascii }, { MODULE_CORE, 10, (function)push_wide },
	{ MODULE_CORE, 11, (function)pop },
	{ MODULE_CORE2, 1, (function)domain_mark }, { MODULE_CORE2, 2, (function)domain_start },
	{ MODULE_CORE2, 3, (function)domain_end }, { MODULE_CORE2, 4, (function)domain_push },
	{ MODULE_CORE2, 5, (function)domain_pop },
	{ MODULE_CORE2, 10, (function)register_string },
	{ MODULE_CORE2, 11, (function)register_string_wide },
	{ MODULE_CORE2, 12, (function)gm_nvtx_register },
	{ MODULE_CORE2, 13, (function)gm_nvtx_register_wide },
};

GM_PUBLIC int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id));

/* Called by NVTX. Returns 1; 0 when we are not to, or do not know this NVTX: it does without. */
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
	const struct callbacks *callbacks = export_table ? export_table(TABLE_CALLBACKS) : NULL;
	unsigned int attached = 0;

	if (!is_wanted() || !callbacks || callbacks->struct_size < sizeof(*callbacks) ||
	    !callbacks->module_table)
		return 0;
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		function **table = NULL;
		unsigned int size = 0;

		if (!callbacks->module_table(ours[i].module, &table, &size) || !table ||
		    ours[i].place >= size || !table[ours[i].place])
			continue;
		*table[ours[i].place] = ours[i].function;
		attached++;
	}
	return attached != 0;
}
