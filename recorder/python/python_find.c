/*
 * python_find.c - find the interpreters of the process (see python.h).
 *
 * Owns the table of interpreters. One thread fills an entry and publishes it. The entry is never reused for
 * another object, so readers need no lock. A lossy table remembers objects that are no Python. Contexts as
 * python.h.
 */
#include "recorder/python/python.h"
#include "recorder/python/python_view.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "recorder/modules/modules.h"
#include "recorder/modules/object.h"
#include "recorder/modules/object_symbol.h"
#include "recorder/journal/probe.h"

#define PYTHONS 8u			/* the most in the life of a process */
#define FIRST_MINOR 8u			/* CPython 3.8 */
#define SAYS_LAYOUT 13u			/* CPython 3.13, the first that says where its frames are */
#define OTHERS 512u			/* objects that are no Python; a power of two */
#define AT_START_MOST 512		/* the most objects that a search looks at */

static struct gm_python pythons[PYTHONS];
static struct gm_python_layout layouts[PYTHONS];	/* of each interpreter */
static _Atomic(uint32_t) pythons_count;
static _Atomic(bool) busy;		/* a thread is adding an entry */
static _Atomic(uint64_t) others[OTHERS];
_Atomic(uint32_t) gm_python_changes;	/* incremented when gm_python_on may answer differently */
static _Atomic(uint32_t) cut_stacks;	/* cut stacks on which no interpreter was found */
static void (*note)(const char *line);

void gm_python_init(void (*new_note)(const char *line))
{
	note = new_note;
}

static void changed(void)
{
	atomic_fetch_add_explicit(&gm_python_changes, 1, memory_order_release);
}

uint8_t gm_python_number(const struct gm_python *python)
{
	return python ? (uint8_t)(python - pythons + 1) : 0;
}

struct gm_python *gm_python_of(uint8_t number)
{
	return &pythons[number - 1];
}

/* Report why Python stacks are off. Only the first word of @version is shown. */
static void tell(const char *version, const char *why)
{
	char line[256];

	if (!note)
		return;
	snprintf(line, sizeof(line), "Python stacks are off: CPython %.*s%s",
		 (int)strcspn(version, " "), version, why);
	note(line);
}

void gm_python_off(struct gm_python *python)
{
	uint32_t ready = GM_PYTHON_READY;
	char version[8];

	if (!atomic_compare_exchange_strong_explicit(&python->state, &ready, GM_PYTHON_OFF,
						     memory_order_acq_rel, memory_order_relaxed))
		return;
	changed();
	snprintf(version, sizeof(version), "3.%u", python->layout->minor);
	tell(version, " does not keep its frames where it should");
}

static bool is_usable(const struct gm_python *python)
{
	return atomic_load_explicit(&python->state, memory_order_acquire) == GM_PYTHON_READY &&
	       atomic_load_explicit(&python->generation, memory_order_acquire) ==
		       gm_modules_generation();
}

struct gm_python *gm_python_on(const uintptr_t *pcs, int count, bool cut)
{
	uint32_t known = atomic_load_explicit(&pythons_count, memory_order_acquire);
	struct gm_python *any = NULL;

	for (uint32_t i = 0; i < known; i++) {
		struct gm_python *python = &pythons[i];
		uintptr_t start = python->start, bytes = python->end - start;

		if (!is_usable(python))
			continue;
		for (int k = count - 1; k >= 0; k--)	/* the outermost frames first, because Python usually
							 * began the stack */
			if (pcs[k] - start < bytes)
				return python;
		any = python;
	}
	return cut ? any : NULL;
}

/* ---- finding ---- */

/* Return x for CPython 3.x; 0 for any other. */
static unsigned int minor_of(const char *version)
{
	unsigned int minor = 0;

	if (version[0] != '3' || version[1] != '.')
		return 0;
	for (const char *at = version + 2; *at >= '0' && *at <= '9' && minor < 100; at++)
		minor = minor * 10 + (unsigned int)(*at - '0');
	return minor;
}

/* Fill in @layout, the layout of @python. Returns NULL, or why the layout is not known. */
static const char *find_layout(struct gm_python_layout *layout, const struct gm_python *python,
			       const struct gm_symbols *symbols, const char *version)
{
	unsigned int minor = minor_of(version);

	if (minor < SAYS_LAYOUT && gm_symbols_find(symbols, "_Py_PrintReferences", NULL))
		return " is built with --with-trace-refs";
	if (!gm_python_find_layout(layout, minor, gm_symbols_find(symbols, "_PyRuntime", NULL),
				   python->code_type))
		return " does not say where its frames are in a way that is known here";
	return NULL;
}

/* Fill in @python from the symbols. Returns NULL, or why its frames cannot be read. */
static const char *fill(struct gm_python *python, struct gm_python_layout *layout,
			const struct gm_symbols *symbols, const char **ret_version)
{
	const char *(*version)(void);
	size_t bytes = 0;

	*ret_version = "";
	*(uintptr_t *)&version = gm_symbols_find(symbols, "Py_GetVersion", NULL);
	if (!version)
		return "(it does not say its version)";
	*ret_version = version();
	if (minor_of(*ret_version) < FIRST_MINOR)
		return " is not known here (CPython 3.8 and later are)";
	if (strstr(*ret_version, "PyPy"))
		return " is PyPy";
	python->eval = gm_symbols_find(symbols, "_PyEval_EvalFrameDefault", &bytes);
	python->eval_end = python->eval + bytes;
	python->code_type = gm_symbols_find(symbols, "PyCode_Type", NULL);
	python->text_type = gm_symbols_find(symbols, "PyUnicode_Type", NULL);
	python->bytes_type = gm_symbols_find(symbols, "PyBytes_Type", NULL);
	*(uintptr_t *)&python->this_state =
		gm_symbols_find(symbols, "PyGILState_GetThisThreadState", NULL);
	*(uintptr_t *)&python->holder =
		gm_symbols_find(symbols, "_PyThreadState_UncheckedGet", NULL);
	*(uintptr_t *)&python->newest = gm_symbols_find(symbols, "PyInterpreterState_Head", NULL);
	*(uintptr_t *)&python->is_finalizing = gm_symbols_find(symbols, "_Py_IsFinalizing", NULL);
	if (!python->is_finalizing)
		*(uintptr_t *)&python->is_finalizing =
			gm_symbols_find(symbols, "Py_IsFinalizing", NULL);
	if (!python->code_type || !python->text_type || !python->bytes_type ||
	    !python->this_state || !python->is_finalizing)
		return " lacks what is needed to read its frames";
	return find_layout(layout, python, symbols, *ret_version);
}

/* Add @object, which is a Python, to the table. Returns whether its frames can be read. */
static bool add(const struct gm_object *object, const struct gm_symbols *symbols,
		uint32_t generation)
{
	uint32_t at = atomic_load_explicit(&pythons_count, memory_order_relaxed);
	struct gm_python *python = &pythons[at];
	struct gm_object_identity identity;
	const char *version, *why;

	if (at == PYTHONS)
		return false;
	python->start = object->start;
	python->end = object->end;
	python->identity = gm_object_identify(object, &identity) ? identity.hash : 0;
	python->layout = &layouts[at];
	why = fill(python, &layouts[at], symbols, &version);
	atomic_store_explicit(&python->generation, generation, memory_order_relaxed);
	atomic_store_explicit(&python->state, why ? GM_PYTHON_OFF : GM_PYTHON_READY,
			      memory_order_relaxed);
	atomic_store_explicit(&pythons_count, at + 1, memory_order_release);
	changed();
	if (why)
		tell(version, why);
	return !why;
}

/* Return the entry of @object, and mark it as loaded in @generation, if it is still the same object; NULL: it
 * has no entry. */
static struct gm_python *find_again(const struct gm_object *object, uint32_t generation)
{
	uint32_t known = atomic_load_explicit(&pythons_count, memory_order_acquire);
	struct gm_object_identity identity;

	for (uint32_t i = 0; i < known; i++) {
		struct gm_python *python = &pythons[i];

		if (python->start != object->start || python->end != object->end)
			continue;
		if (atomic_load_explicit(&python->generation, memory_order_acquire) == generation)
			return python;
		if (!gm_object_identify(object, &identity) || python->identity != identity.hash)
			continue;
		atomic_store_explicit(&python->generation, generation, memory_order_release);
		changed();
		return python;
	}
	return NULL;
}

/* Examine @object, and add it to the table if it is a new Python. Returns whether it is a Python that can be read. */
static bool examine(const struct gm_object *object, uint32_t generation)
{
	uint64_t mark = (object->start ^ object->link_map << 20 ^ object->end << 1 ^
			 object->eh_frame_hdr) | 1;
	_Atomic(uint64_t) *other = &others[(object->start >> 12) % OTHERS];
	struct gm_symbols symbols;
	struct gm_python *known;
	bool found;

	if (atomic_load_explicit(other, memory_order_relaxed) == mark)
		return false;
	known = find_again(object, generation);
	if (known)
		return is_usable(known);
	if (!gm_symbols_open(&symbols, object) ||
	    !gm_symbols_find(&symbols, "_PyEval_EvalFrameDefault", NULL)) {
		atomic_store_explicit(other, mark, memory_order_relaxed);
		return false;
	}
	if (atomic_exchange_explicit(&busy, true, memory_order_acquire))
		return false;		/* another thread is adding one; the next stack tries again */
	found = find_again(object, generation) ? true : add(object, &symbols, generation);
	atomic_store_explicit(&busy, false, memory_order_release);
	return found;
}

/* Examine the executable and the libraries that it was linked with, in the order of the loader's list. Every
 * word of the list is read by gm_probe_copy, because the list may change meanwhile. */
static bool search(uint32_t generation)
{
	struct gm_object object;
	struct link_map map;
	uintptr_t at;

	if (!gm_object_find(getauxval(AT_ENTRY), &object))
		return false;
	if (examine(&object, generation))
		return true;
	at = object.link_map;
	for (int i = 0; at && i < AT_START_MOST; i++) {
		if (gm_probe_copy(&map, at, sizeof(map)) != sizeof(map))
			return false;
		if (map.l_ld && gm_object_find((uintptr_t)map.l_ld, &object) &&
		    examine(&object, generation))
			return true;
		at = (uintptr_t)map.l_next;
	}
	return false;
}

bool gm_python_discover(const uintptr_t *pcs, int count, bool cut)
{
	uint32_t generation = gm_modules_generation(), cuts;
	uintptr_t start = 0, end = 0;
	bool found = false;

	for (int i = 0; i < count; i++) {
		struct gm_object object;

		if (pcs[i] - start < end - start || !gm_object_find(pcs[i], &object))
			continue;
		start = object.start;
		end = object.end;
		found |= examine(&object, generation);
	}
	if (found || !cut)
		return found;
	/* Do not search for every stack that ends in code without tables: search for the 1st, 2nd, 4th ... of
	 * them. */
	cuts = atomic_fetch_add_explicit(&cut_stacks, 1, memory_order_relaxed) + 1;
	return (cuts & (cuts - 1)) == 0 && search(generation);
}
