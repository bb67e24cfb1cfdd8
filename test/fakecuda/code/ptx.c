/*
 * ptx.c - the little that launching and linking need to know of PTX: the parameters of every
 * `.entry`, and the variables at file scope.
 *
 *	.visible .entry NAME(
 *		.param .u64 NAME_param_0,
 *		.param .align 8 .b8 NAME_param_1[24]
 *	)
 *	.global .align 4 .u32 counter = 7;
 *	.global .attribute(.managed) .align 4 .b8 table[16];
 *
 * Pure functions on text in memory, plus malloc.
 */
#include "test/fakecuda/code/module.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cursor {
	const char *p, *end;
};

static bool at_end(const struct cursor *c)
{
	return c->p >= c->end || !*c->p;
}

static void skip_space(struct cursor *c)
{
	while (!at_end(c)) {
		if (isspace((unsigned char)*c->p)) {
			c->p++;
		} else if (c->end - c->p > 1 && c->p[0] == '/' && c->p[1] == '/') {
			while (!at_end(c) && *c->p != '\n')
				c->p++;
		} else {
			break;
		}
	}
}

static bool is_word(char ch)
{
	return isalnum((unsigned char)ch) || ch == '_' || ch == '$' || ch == '.' || ch == '%';
}

/* The next word, or a single other character. False at the end. */
static bool next(struct cursor *c, const char **ret_word, size_t *ret_len)
{
	skip_space(c);
	if (at_end(c))
		return false;
	*ret_word = c->p;
	if (is_word(*c->p))
		while (!at_end(c) && is_word(*c->p))
			c->p++;
	else
		c->p++;
	*ret_len = (size_t)(c->p - *ret_word);
	return true;
}

static bool is(const char *word, size_t len, const char *what)
{
	return len == strlen(what) && !memcmp(word, what, len);
}

/* Bytes of a type word such as ".u64"; 0: not a type. */
static size_t type_size(const char *word, size_t len)
{
	static const struct {
		const char *digits;
		size_t size;
	} sizes[] = { { "8", 1 }, { "16", 2 }, { "32", 4 }, { "64", 8 }, { "128", 16 },
		      { "16x2", 4 } };

	if (len < 3 || word[0] != '.' || !strchr("usbf", word[1]))
		return 0;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (is(word + 2, len - 2, sizes[i].digits))
			return sizes[i].size;
	return 0;
}

static size_t number(const char *word, size_t len)
{
	char buf[32];

	if (len >= sizeof(buf))
		return 0;
	memcpy(buf, word, len);
	buf[len] = 0;
	return strtoul(buf, NULL, 0);
}

struct decl {			/* a parameter or a variable */
	const char *name;
	size_t name_len, element, count, align;
	bool managed;
	char stop;		/* what ended it: ',' ')' ';' '=' */
};

/* From behind ".param", ".global" or ".const" to what ends the declaration. */
static bool declaration(struct cursor *c, struct decl *d)
{
	const char *w;
	size_t n;

	memset(d, 0, sizeof(*d));
	d->count = 1;
	while (next(c, &w, &n)) {
		size_t size = type_size(w, n);

		if (size && !d->element) {
			d->element = size;
			d->align = d->align ? d->align : size;
		} else if (is(w, n, ".align")) {
			if (!next(c, &w, &n))
				return false;
			if (!d->element)	/* of the parameter, not of what it points to */
				d->align = number(w, n);
		} else if (is(w, n, ".attribute")) {	/* .attribute(.managed) */
			while (next(c, &w, &n) && !is(w, n, ")"))
				d->managed = d->managed || is(w, n, ".managed");
		} else if (is(w, n, "[")) {
			if (!next(c, &w, &n))
				return false;
			d->count = is(w, n, "]") ? 0 : d->count * number(w, n);
		} else if (strchr(",);=", *w)) {
			d->stop = *w;
			return d->element && d->name;
		} else if (is_word(*w) && *w != '.' && d->element) {
			d->name = w;
			d->name_len = n;
		}
	}
	return false;
}

static char *copy_name(const char *p, size_t n)
{
	char *s = malloc(n + 1);

	if (s) {
		memcpy(s, p, n);
		s[n] = 0;
	}
	return s;
}

/* ---- kernels ---- */

static int add_param(struct fc_kernel *k, const struct decl *d)
{
	size_t n = k->n_params + 1u, size = d->element * d->count;
	size_t *sizes = realloc(k->sizes, n * sizeof(*sizes)), *offsets;

	if (!sizes)
		return -ENOMEM;
	k->sizes = sizes;
	offsets = realloc(k->offsets, n * sizeof(*offsets));
	if (!offsets)
		return -ENOMEM;
	k->offsets = offsets;
	k->offsets[n - 1] = (k->params_size + d->align - 1) / d->align * d->align;
	k->sizes[n - 1] = size;
	k->params_size = k->offsets[n - 1] + size;
	k->n_params++;
	return 0;
}

static int add_kernel(struct fc_image *image, struct fc_kernel *k)
{
	struct fc_kernel **grown;

	grown = realloc(image->kernels, (image->n_kernels + 1) * sizeof(struct fc_kernel *));
	if (!grown)
		return -ENOMEM;
	image->kernels = grown;
	image->kernels[image->n_kernels++] = k;
	k->module = image;
	return 0;
}

/* Behind ".entry". */
static int entry(struct cursor *c, struct fc_image *image)
{
	struct fc_kernel *k = calloc(1, sizeof(*k));
	const char *w;
	struct decl d;
	int r = 0;
	size_t n;

	if (!k)
		return -ENOMEM;
	if (!next(c, &w, &n) || !(k->name = copy_name(w, n)) || fc_image_kernel(image, k->name))
		goto drop;
	if (next(c, &w, &n) && *w == '(')
		while (!r && next(c, &w, &n) && is(w, n, ".param") && declaration(c, &d)) {
			r = add_param(k, &d);
			if (d.stop == ')')
				break;
		}
	r = r ? r : add_kernel(image, k);
	if (!r)
		return 0;
drop:
	fc_kernel_free(k);
	return r;
}

/* ---- variables ---- */

/* One value of an initialiser: an integer, 0fXXXXXXXX or 0dXXXXXXXXXXXXXXXX. Addresses of other
 * variables, which would need relocation, count as zero. */
static uint64_t value(const char *w, size_t n)
{
	char buf[40];

	if (n >= sizeof(buf))
		return 0;
	memcpy(buf, w, n);
	buf[n] = 0;
	if (buf[0] == '0' && (buf[1] == 'f' || buf[1] == 'd'))
		return strtoull(buf + 2, NULL, 16);
	return strtoull(buf, NULL, 0);
}

static void initialise(struct cursor *c, struct fc_global *g, size_t element)
{
	size_t at = 0, n;
	bool negative = false;
	const char *w;

	g->init = calloc(1, g->size);
	while (g->init && next(c, &w, &n) && *w != ';') {
		uint64_t v;

		if (*w == '-') {
			negative = true;
			continue;
		}
		if (!isdigit((unsigned char)*w))
			continue;
		v = value(w, n);
		v = negative ? 0 - v : v;
		negative = false;
		if (at + element <= g->size)
			memcpy(g->init + at, &v, element < 8 ? element : 8);
		at += element;
	}
}

static int variable(struct cursor *c, struct fc_image *image)
{
	struct fc_global *grown, *g;
	struct decl d;

	if (!declaration(c, &d) || (d.stop != ';' && d.stop != '=') || !d.count)
		return 0;
	for (size_t i = 0; i < image->n_globals; i++)
		if (is(d.name, d.name_len, image->globals[i].name))
			return 0;
	grown = realloc(image->globals, (image->n_globals + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	image->globals = grown;
	g = &grown[image->n_globals];
	*g = (struct fc_global){ .size = d.element * d.count, .align = d.align,
				 .managed = d.managed };
	g->name = copy_name(d.name, d.name_len);
	if (!g->name)
		return -ENOMEM;
	image->n_globals++;
	if (d.stop == '=')
		initialise(c, g, d.element);
	return 0;
}

/* ---- the whole ---- */

int fc_ptx_parse(struct fc_image *image, const char *text, size_t size)
{
	struct cursor c = { text, text + size };
	unsigned int depth = 0;
	const char *w;
	int r = 0;
	size_t n;

	while (!r && next(&c, &w, &n)) {
		if (*w == '{')
			depth++;
		else if (*w == '}' && depth)
			depth--;
		else if (!depth && is(w, n, ".entry"))
			r = entry(&c, image);
		else if (!depth && (is(w, n, ".global") || is(w, n, ".const")))
			r = variable(&c, image);
	}
	return r;
}
