/*
 * nvtx.c - NVTX, NVIDIA's tools extension: the program's marks and ranges become annotations.
 *
 * A program's NVTX finds us by getenv, and then calls InitializeInjectionNvtx2 and the functions that we put
 * into its table. nvtx_mem.c has the memory extension. The layouts are those of NVTX 3, which only grow. They
 * are declared here, so that the build needs no NVTX header.
 *
 * Every library that uses NVTX has its own copy of it with its own table of functions. Each copy calls
 * InitializeInjectionNvtx2 once, at its first use. Pushes and pops return that levels are not tracked, as NVTX
 * does without a tool, so the program sees no difference.
 *
 * Thread context: any. NVTX may be called before CUDA; this does not start the library, and such calls are
 * ignored. Signal context: none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <wchar.h>

#include "preload/api/nvtx.h"
#include "preload/order/context.h"
#include "allocator/lock.h"
#include "preload/driver/real.h"
#include "recorder/record/annotations.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"

#define NO_PUSH_POP_TRACKING (-2)	/* NVTX_NO_PUSH_POP_TRACKING */

#define GM_NVTX_TEXT 512u		/* how many bytes of a message are kept */

enum gm_nvtx_message_type { GM_NVTX_UNKNOWN, GM_NVTX_ASCII, GM_NVTX_UNICODE, GM_NVTX_REGISTERED };

struct gm_nvtx_attributes {		/* nvtxEventAttributes_t, 48 bytes */
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;		/* enum gm_nvtx_message_type */
	const void *message;		/* char *, wchar_t *, or a registered string */
};

_Static_assert(sizeof(struct gm_nvtx_attributes) == 48 &&
	       offsetof(struct gm_nvtx_attributes, message) == 40, "as NVTX 3 has it");

/* ---- how NVTX finds us --------------------------------------------------------------------------
 *
 * At its first use in a library, NVTX reads the variable NVTX_INJECTION64_PATH and loads the library that it
 * names. We do not set the variable, because it would show when a program prints its environment, and because
 * children without the preload would load us for nothing. Instead our getenv answers for that name if the
 * variable is not set, and is the real getenv for all other names. A profiler that uses NVTX sets the variable
 * and keeps NVTX.
 */

GM_PUBLIC char *getenv(const char *name);

/* Read option nvtx. This usually happens before the first CUDA call; complaints about options are printed at that
 * call. */
bool gm_nvtx_is_wanted(void)
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

/* Return the path of this library. It is loaded already, so NVTX's dlopen only adds a reference. */
static char *our_path(void)
{
	Dl_info info;

	if (!gm_nvtx_is_wanted() || !dladdr((const void *)our_path, &info) || !info.dli_fname ||
	    !strchr(info.dli_fname, '/'))
		return NULL;
	return (char *)(uintptr_t)info.dli_fname;
}

/* Find a variable before our own set-up, for a constructor of another library. */
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

/* ---- texts --------------------------------------------------------------------------------------
 *
 * Registered texts are in a hash table with chains, in one area of memory that is never unmapped. Texts are
 * looked up without a lock and added under one. A handle from the program is accepted only if it points into
 * the area and the text there points to itself. Programs pass other handles, too, because NVTX without a tool
 * ignores handles.
 */

#define BUCKETS 1024u
#define AREA_BYTES (16u << 20)		/* for registered texts; only used pages take memory */

/* A text that the program registered: a string, or the name of a domain. It never changes and is never removed. */
struct gm_nvtx_text {
	const struct gm_nvtx_text *self;
	struct gm_nvtx_text *next;
	_Atomic(uint32_t) id;		/* string id in the journal; 0: none yet */
	uint32_t hash;
	uint16_t number, length;
	char text[];
};

static _Atomic(struct gm_nvtx_text *) buckets[BUCKETS];
static struct gm_lock lock;		/* for the variables below, and for adding to @buckets */
static _Atomic(void *) area;
static _Atomic(uint32_t) area_used;
static uint16_t last_number;

static uint32_t hash_of(const char *text, uint32_t length)
{
	uint32_t hash = 2166136261u;

	while (length--)
		hash = (hash ^ (uint8_t)*text++) * 16777619u;
	return hash;
}

static struct gm_nvtx_text *find(const char *text, uint32_t length, uint32_t hash)
{
	struct gm_nvtx_text *at = gm_get_acquire(&buckets[hash % BUCKETS]);

	while (at && (at->hash != hash || at->length != length ||
		      memcmp(at->text, text, length) != 0))
		at = at->next;
	return at;
}

static struct gm_nvtx_text *room_locked(uint32_t length)
{
	uint32_t bytes = (uint32_t)(sizeof(struct gm_nvtx_text) + length + 7) & ~7u;
	char *memory = gm_table_once(&area, AREA_BYTES);
	uint32_t used = gm_get(&area_used);

	if (!memory || AREA_BYTES - used < bytes)
		return NULL;
	gm_set_release(&area_used, used + bytes);
	return (void *)(memory + used);
}

/* Return the text of a handle from the program; NULL: the handle is not ours. */
static struct gm_nvtx_text *ours(const struct gm_nvtx_text *handle)
{
	uint32_t used = gm_get_acquire(&area_used);
	uintptr_t at = (uintptr_t)handle - (uintptr_t)gm_get_acquire(&area);

	if (at >= used || used - at < sizeof(*handle) || at % _Alignof(struct gm_nvtx_text) ||
	    handle->self != handle)
		return NULL;
	return (struct gm_nvtx_text *)handle;
}

static struct gm_nvtx_text *add(const char *text, uint32_t length, uint32_t hash)
{
	struct gm_nvtx_text *made;

	if (!gm_lock(&lock))
		return NULL;
	made = find(text, length, hash);
	if (!made)
		made = room_locked(length);
	if (made && !made->number) {
		made->hash = hash;
		made->length = (uint16_t)length;
		made->number = ++last_number ? last_number : ++last_number;
		memcpy(made->text, text, length);
		made->self = made;
		made->next = gm_get(&buckets[hash % BUCKETS]);
		gm_set_release(&buckets[hash % BUCKETS], made);
	}
	gm_unlock(&lock);
	return made;
}

/* Register a text. The same text always returns the same pointer. NULL: no room, or no text. */
static const struct gm_nvtx_text *register_text(const char *text)
{
	uint32_t length = text ? (uint32_t)strnlen(text, GM_NVTX_TEXT) : 0;
	uint32_t hash = hash_of(text, length);
	struct gm_nvtx_text *known;

	if (!text)
		return NULL;
	known = find(text, length, hash);
	return known ? known : add(text, length, hash);
}

/* Convert wchar_t, which holds a code point each, to UTF-8. Invalid code points become U+FFFD; a long text is cut. */
static const char *narrow(const wchar_t *wide, char ret[GM_NVTX_TEXT + 1])
{
	uint32_t used = 0;

	for (; *wide; wide++) {
		uint32_t c = (uint32_t)*wide;
		uint32_t more;

		if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			c = 0xfffd;
		more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
		if (used + more + 1 > GM_NVTX_TEXT)
			break;
		ret[used++] = (char)(more ? (0xf0u << (3 - more) & 0xffu) | c >> 6 * more : c);
		while (more--)
			ret[used++] = (char)(0x80 | (c >> 6 * more & 0x3f));
	}
	ret[used] = '\0';
	return ret;
}

static const struct gm_nvtx_text *register_wide(const wchar_t *text)
{
	char narrowed[GM_NVTX_TEXT + 1];

	return text ? register_text(narrow(text, narrowed)) : NULL;
}

/* Return the id of a text in the journal; GM_NONE for NULL, or without room. The id of a registered text is kept with
 * the text. */
static uint32_t id_of_text(const struct gm_nvtx_text *registered)
{
	struct gm_nvtx_text *text = ours(registered);
	uint32_t id = text ? gm_get(&text->id) : GM_NONE;

	if (!text || id)
		return id;
	id = gm_intern_string(text->text, text->length);
	gm_set(&text->id, id);
	return id;
}

static uint32_t id_of(const char *text)
{
	return text ? gm_intern_string(text, (uint32_t)strnlen(text, GM_NVTX_TEXT)) : GM_NONE;
}

static uint32_t id_of_wide(const wchar_t *text)
{
	char narrowed[GM_NVTX_TEXT + 1];

	return text ? id_of(narrow(text, narrowed)) : GM_NONE;
}

static uint32_t id_of_event(const struct gm_nvtx_attributes *event)
{
	if (!event || event->size < sizeof(*event))
		return GM_NONE;
	switch (event->message_type) {
	case GM_NVTX_ASCII:
		return id_of(event->message);
	case GM_NVTX_UNICODE:
		return id_of_wide(event->message);
	case GM_NVTX_REGISTERED:
		return id_of_text(event->message);
	default:
		return GM_NONE;
	}
}

/* An event that has only a message. */
#define EVENT(type, text) (&(const struct gm_nvtx_attributes){ \
	.size = sizeof(struct gm_nvtx_attributes), .message_type = (type), .message = (text) })

uint32_t gm_nvtx_message_id(int32_t type, const void *message)
{
	return id_of_event(EVENT(type, message));
}

/* Return a number that tells a domain from other domains; 0 for the default domain, NULL. */
static uint16_t scope_of(const struct gm_nvtx_text *domain)
{
	const struct gm_nvtx_text *text = ours(domain);

	return text ? text->number : 0;
}

/* ---- functions that NVTX calls ---- */

typedef const struct gm_nvtx_text *handle;
typedef const struct gm_nvtx_attributes *event;

/* Is anything recorded in this process? Reads one word, and calls getpid() only where the word cannot tell a child from
 * its parent. */
static inline bool recording(void)
{
	uint32_t word = gm_state_word();

	return word == GM_STATE_RUNNING ||
	       (word == GM_STATE_RUNNING_CHECKED && gm_state.pid == getpid());
}

static struct gm_annotation about(handle domain, event attributes)
{
	return (struct gm_annotation){
		.name = id_of_event(attributes), .scope_name = id_of_text(domain), .scope = scope_of(domain),
		.device = gm_where_last(),
	};
}

/* ---- the functions of NVTX --------------------------------------------------------------------- */

static void domain_mark(handle domain, event attributes)
{
	struct gm_annotation what;

	if (!recording())
		return;
	what = about(domain, attributes);
	gm_annotate_mark(&what);
}

static void mark_event(event attributes)
{
	domain_mark(NULL, attributes);
}

static void mark_ascii(const char *message)
{
	domain_mark(NULL, EVENT(GM_NVTX_ASCII, message));
}

static void mark_wide(const wchar_t *message)
{
	domain_mark(NULL, EVENT(GM_NVTX_UNICODE, message));
}

static uint64_t domain_start(handle domain, event attributes)
{
	struct gm_annotation what;

	if (!recording())
		return GM_RANGE_NONE;
	what = about(domain, attributes);
	return gm_annotate_start(&what);
}

static uint64_t start_event(event attributes)
{
	return domain_start(NULL, attributes);
}

static uint64_t start_ascii(const char *message)
{
	return domain_start(NULL, EVENT(GM_NVTX_ASCII, message));
}

static uint64_t start_wide(const wchar_t *message)
{
	return domain_start(NULL, EVENT(GM_NVTX_UNICODE, message));
}

static void domain_end(handle domain, uint64_t range)
{
	if (recording())
		gm_annotate_end(range, id_of_text(domain));
}

static void end(uint64_t range)
{
	domain_end(NULL, range);
}

static int domain_push(handle domain, event attributes)
{
	bool record = recording();
	struct gm_annotation what;

	if (record)
		what = about(domain, attributes);
	gm_annotate_push(record ? &what : NULL, scope_of(domain));
	return NO_PUSH_POP_TRACKING;
}

static int push_event(event attributes)
{
	return domain_push(NULL, attributes);
}

static int push_ascii(const char *message)
{
	return domain_push(NULL, EVENT(GM_NVTX_ASCII, message));
}

static int push_wide(const wchar_t *message)
{
	return domain_push(NULL, EVENT(GM_NVTX_UNICODE, message));
}

static int domain_pop(handle domain)
{
	gm_annotate_pop(scope_of(domain), recording() ? id_of_text(domain) : GM_NONE);
	return NO_PUSH_POP_TRACKING;
}

static int pop(void)
{
	return domain_pop(NULL);
}

static handle register_string(handle domain, const char *text)
{
	(void)domain;
	return register_text(text);
}

static handle register_string_wide(handle domain, const wchar_t *text)
{
	(void)domain;
	return register_wide(text);
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
static const struct { int module; unsigned int place; function function; } functions[] = {
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
	{ MODULE_CORE2, 12, (function)register_text },
	{ MODULE_CORE2, 13, (function)register_wide },
};

GM_PUBLIC int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id));

/* Called by NVTX. Returns 1; 0 when option nvtx is off or this NVTX is not known, and NVTX goes on without us. */
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
	const struct callbacks *callbacks = export_table ? export_table(TABLE_CALLBACKS) : NULL;
	unsigned int attached = 0;

	if (!gm_nvtx_is_wanted() || !callbacks || callbacks->struct_size < sizeof(*callbacks) ||
	    !callbacks->module_table)
		return 0;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		function **table = NULL;
		unsigned int size = 0;

		if (!callbacks->module_table(functions[i].module, &table, &size) || !table ||
		    functions[i].place >= size || !table[functions[i].place])
			continue;
		*table[functions[i].place] = functions[i].function;
		attached++;
	}
	return attached != 0;
}
