/*
 * kernels.c - what kernels do here, and for how long: by name, since nothing here runs GPU code.
 *
 * A test may give any kernel a duration (fakecuda.h). Built in are fill, add, copy
 * and fault, for kernels of exactly that name (C++ names are taken apart) and fitting parameters;
 * what contains "spin" lasts 5 virtual seconds. All other kernels do nothing, and count as using
 * every allocation that a parameter points into. Lock: fc.lock.
 */
#include "test/fakecuda/code/kernels.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_NS 5000000000ULL

struct rule {			/* of a test: later ones come first */
	char *name;		/* a part of the kernel's */
	bool has_ns;
	uint64_t ns;
	struct rule *next;
};

static struct rule *rules;

/* ---- names ---- */

/* The plain name in "_Z4fillIjEvPT_S0_m", "_ZN2ns5innerEv" or "fill". */
static void plain_name(const char *name, const char **ret_p, size_t *ret_n)
{
	const char *p = name;

	*ret_p = name;
	*ret_n = strlen(name);
	if (strncmp(p, "_Z", 2))
		return;
	p += p[2] == 'N' ? 3 : 2;
	while (isdigit((unsigned char)*p)) {
		char *end;
		size_t n = strtoul(p, &end, 10);

		if (n > strlen(end))
			return;
		*ret_p = end;
		*ret_n = n;
		p = end + n;
	}
}

static bool named(const char *kernel, const char *what)
{
	const char *p;
	size_t n;

	plain_name(kernel, &p, &n);
	return n == strlen(what) && !memcmp(p, what, n);
}

/* ---- built in ---- */

enum builtin { NONE, FILL, ADD, COPY, FAULT };

static bool sizes_are(const struct fc_kernel *k, size_t a, size_t b)
{
	return k->n_params == 3 && k->sizes[0] == a && k->sizes[1] == b &&
	       (k->sizes[2] == 4 || k->sizes[2] == 8);
}

static enum builtin builtin_of(const struct fc_kernel *k)
{
	if (named(k->name, "fill") && sizes_are(k, 8, 4))
		return FILL;
	if (named(k->name, "add") && sizes_are(k, 8, 4))
		return ADD;
	if (named(k->name, "copy") && sizes_are(k, 8, 8))
		return COPY;
	return named(k->name, "fault") ? FAULT : NONE;
}

static uint64_t word(const struct fc_args *a, unsigned int i)
{
	uint64_t v = 0;

	memcpy(&v, a->args[i], a->k->sizes[i] < 8 ? a->k->sizes[i] : 8);
	return v;
}

static CUresult add_words(uint64_t ptr, uint32_t value, size_t n)
{
	for (size_t i = 0; i < n; i++, ptr += 4) {
		size_t run;
		uint8_t *p = fc_span(ptr, 4, &run);
		uint32_t v;

		if (!p || run < 4)
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		memcpy(&v, p, 4);
		v += value;
		memcpy(p, &v, 4);
	}
	return CUDA_SUCCESS;
}

CUresult fc_kernel_run(const struct fc_args *a)
{
	uint32_t value;

	switch (builtin_of(a->k)) {
	case FILL:
		value = (uint32_t)word(a, 1);
		return fc_mem_fill(word(a, 0), &value, 4, word(a, 2));
	case ADD:
		return add_words(word(a, 0), (uint32_t)word(a, 1), word(a, 2));
	case COPY:
		return fc_mem_move(word(a, 0), word(a, 1), word(a, 2) * 4);
	case FAULT:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	default:
		return CUDA_SUCCESS;
	}
}

/* Every aligned word of the parameters that points into an allocation is taken for a use of it. */
static int touch_pointers(struct fc_work *w, const struct fc_args *a)
{
	for (unsigned int i = 0; i < a->k->n_params; i++) {
		size_t first = (8 - a->k->offsets[i] % 8) % 8;

		for (size_t at = first; at + 8 <= a->k->sizes[i]; at += 8) {
			uint64_t ptr;

			memcpy(&ptr, (const char *)a->args[i] + at, 8);
			if (ptr && fc_alloc_find(ptr) && fc_work_use(w, ptr))
				return -ENOMEM;
		}
	}
	return 0;
}

int fc_kernel_touch(struct fc_work *w, const struct fc_args *a)
{
	size_t bytes;

	switch (builtin_of(a->k)) {
	case FILL:
		return fc_work_touch(w, word(a, 0), word(a, 2) * 4, true);
	case ADD:
		bytes = word(a, 2) * 4;
		return fc_work_touch(w, word(a, 0), bytes, false) ||
		       fc_work_touch(w, word(a, 0), bytes, true) ? -ENOMEM : 0;
	case COPY:
		bytes = word(a, 2) * 4;
		return fc_work_touch(w, word(a, 1), bytes, false) ||
		       fc_work_touch(w, word(a, 0), bytes, true) ? -ENOMEM : 0;
	default:
		return touch_pointers(w, a);
	}
}

/* ---- how long they last ---- */

uint64_t fc_kernel_ns(const char *name)
{
	for (struct rule *r = rules; r; r = r->next)
		if (r->has_ns && strstr(name, r->name))
			return r->ns;
	return strstr(name, "spin") ? SPIN_NS : fc.kernel_ns;
}

static struct rule *rule_for(const char *name)
{
	struct rule *r;

	for (r = rules; r; r = r->next)
		if (!strcmp(r->name, name))
			return r;
	r = calloc(1, sizeof(*r));
	if (r)
		r->name = strdup(name);
	if (!r || !r->name) {
		free(r);
		return NULL;
	}
	r->next = rules;
	rules = r;
	return r;
}

FC_EXPORT void fakecuda_set_kernel_ns(const char *name, uint64_t ns)
{
	struct rule *r;

	fc_enter_control();
	if (!name) {
		fc.kernel_ns = ns;
	} else if ((r = rule_for(name))) {
		r->has_ns = true;
		r->ns = ns;
	}
	fc_leave_control();
}

void fc_kernel_reset(void)
{
	while (rules) {
		struct rule *r = rules;

		rules = r->next;
		free(r->name);
		free(r);
	}
}
