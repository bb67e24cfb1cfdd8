/*
 * fold.c - user code first: which frames of a stack are not the program's, and short names: see stacks.h. One thread.
 *
 * The page has the same rules and the same tables: tools/viewer/src/model/stacks.js. test/viewer/test_stacks.mjs
 * compares the results of both on real stacks.
 */
#define _GNU_SOURCE
#include <string.h>

#include "tools/read/value.h"
#include "tools/show/show.h"
#include "tools/show/stacks.h"

#define SHORT_ENOUGH 40u		/* bytes: a shorter name stays as it is */

static bool every;			/* every frame is shown */

void gm_stacks_unfold(void)
{
	every = true;
}

bool gm_stacks_folded(void)
{
	return !every;
}

const char *gm_fold_name(enum gm_fold fold)
{
	static const char *const names[] = { "", "interpreter", "allocator", "dispatcher" };

	return names[fold];
}

/* Does @text begin with @pattern, in which one * stands for anything? */
static bool begins(const char *text, const char *pattern)
{
	size_t fixed = strcspn(pattern, "*");

	return !strncmp(text, pattern, fixed) && (!pattern[fixed] || strstr(text + fixed, pattern + fixed + 1));
}

/* Is @name a function of PyTorch's dispatcher, or one that binds C++ to Python? */
static bool is_dispatcher(const char *name)
{
	static const char *const patterns[] = {
		"c10::impl", "c10::Dispatcher", "c10::KernelFunction", "c10::BoxedKernel", "at::_ops", "at::redispatch",
		"torch::autograd::VariableType", "torch::autograd::THPVariable", "torch::autograd::ADInplaceOrView",
		"at::(anonymous namespace)::*wrapper_", "pybind11::", "_ZN3c104impl", "_ZNK3c104impl",
		"_ZN3c1010Dispatcher", "_ZNK3c1010Dispatcher", "_ZN2at4_ops", "_ZN5torch8autograd12VariableType",
		"_ZN5torch8autogradL*THPVariable",
	};
	static const char *const results[] = { "void ", "auto " };

	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (!strncmp(name, results[i], strlen(results[i]))) {
			name += strlen(results[i]);
			break;
		}
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (begins(name, patterns[i]))
			return true;
	return false;
}

enum gm_fold gm_frame_fold(const struct gm_frame *frame)
{
	/* These run Python's code, and call C for it. */
	static const char *const modules[] = { "python", "libpython", "libffi.so", "_ctypes." };

	if (frame->sort == GM_FRAME_PLUMBING)
		return frame->python ? GM_FOLD_INTERPRETER : GM_FOLD_ALLOCATOR;
	if (frame->python)
		return GM_FOLD_NOT;
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (begins(frame->module, modules[i]))
			return GM_FOLD_INTERPRETER;
	return is_dispatcher(frame->name) ? GM_FOLD_DISPATCHER : GM_FOLD_NOT;
}

/* Does @name end with a line number, as in ":88)"? */
static bool has_place(const char *name)
{
	const char *end = name + strlen(name), *at = end - 1;

	if (end == name || *at != ')')
		return false;
	while (at > name && at[-1] >= '0' && at[-1] <= '9')
		at--;
	return at < end - 1 && at > name && at[-1] == ':';
}

/*
 * Return the length of a name like "operator<<" at @text, whose letters are no brackets; 0: no such name is there. The
 * letter behind the name separates operator<< <int> from operator< with <int>, because some demanglers write no space.
 */
static size_t operator_length(const char *text)
{
	static const char *const symbols[] = {
		"()", "[]", "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">",
	};
	static const char word[] = "operator";

	if (strncmp(text, word, sizeof(word) - 1))
		return 0;
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		size_t length = strlen(symbols[i]);
		const char *behind = text + sizeof(word) - 1 + length;

		if (!strncmp(behind - length, symbols[i], length) && strchr("(<: ,)>[", *behind))
			return sizeof(word) - 1 + length;
	}
	return 0;
}

/* Return the place behind the bracket that closes the bracket at @open; the end of the text if none does. */
static const char *closed(const char *open)
{
	unsigned int depth = 0;

	do {
		depth += *open == '(' ? 1u : *open == ')' ? -1u : 0;
		open++;
	} while (depth && *open);
	return open;
}

static bool is_word(char letter)
{
	return letter == '_' || (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
	       (letter >= 'a' && letter <= 'z');
}

/* Return the bracket at which the parameters begin that end @text; NULL: there are none. */
static char *parameters(char *text)
{
	for (char *from = strchr(text, '('); from; from = strchr(from + 1, '(')) {
		unsigned int depth = 0;
		char *at = from;

		if (!strncmp(from, "(anonymous", 10) || (from - text >= 8 && !strncmp(from - 8, "operator", 8)))
			continue;
		do
			depth += *at == '(' ? 1u : *at == ')' ? -1u : 0;
		while (depth && depth <= 2 && *++at);
		if (!depth && (!at[1] || !strcmp(at + 1, " const")))
			return from;
	}
	return NULL;
}

/* Copy @name with <\u2026> and (\u2026) in place of the arguments of templates and of the parameters. */
static void abridge(const char *name, char *ret, size_t room)
{
	static const char left_out[] = "<\u2026>";
	const char *at = name;
	unsigned int depth = 0;
	size_t n = 0;
	char *end;

	while (*at && n + sizeof(left_out) + 5 < room) {
		char before = at > name ? at[-1] : ' ';
		size_t symbol = is_word(before) ? 0 : operator_length(at), whole = symbol ? symbol : 1;

		if (depth && *at == '(') {
			at = closed(at);
			continue;
		}
		if (!symbol && *at == '<' && !depth++) {
			memcpy(ret + n, left_out, sizeof(left_out) - 1);
			n += sizeof(left_out) - 1;
		} else if (!symbol && *at == '>' && before != '-') {
			depth -= depth > 0;
		} else if (!depth) {
			memcpy(ret + n, at, whole);
			n += whole;
		}
		at += whole;
	}
	ret[n] = '\0';
	end = parameters(ret);
	if (end)
		strcpy(end, "(\u2026)");
}

void gm_frame_shorten(const char *name, char *ret, size_t room)
{
	if (strlen(name) < SHORT_ENOUGH || name[0] == '<' || has_place(name)) {
		strncpy(ret, name, room - 1);
		ret[room - 1] = '\0';
	} else {
		abridge(name, ret, room);
	}
}

/* ---- a call site in a number of columns -------------------------------------------------------- */

#define SITE_MOST 1100u			/* bytes; gm_show_clean returns less */
#define NAME_LEAST 9u			/* columns that a name keeps beside its place */
#define ELLIPSIS "\u2026"

static size_t columns_of(const char *text)
{
	size_t columns = 0;

	for (; *text; text++)
		columns += ((unsigned char)*text & 0xc0) != 0x80;
	return columns;
}

/* Return the rest of @text behind its first @columns characters. */
static char *behind(char *text, size_t columns)
{
	while (*text && (columns || ((unsigned char)*text & 0xc0) == 0x80))
		columns -= ((unsigned char)*text++ & 0xc0) != 0x80;
	return text;
}

/* Return the place that ends @site: " (file:line)" or " (module)", which may contain brackets; "": there is none. */
static char *place_of(char *site)
{
	char *end = site + strlen(site), *at = end;
	unsigned int depth = 0;

	if (at == site || at[-1] != ')')
		return end;
	do
		depth += *--at == ')' ? 1u : *at == '(' ? -1u : 0;
	while (depth && at > site);
	return !depth && at > site && at[-1] == ' ' ? at - 1 : end;
}

/* Cut @text on the left to @columns, the first one an ellipsis. */
static void cut_left(char *text, size_t columns)
{
	size_t have = columns_of(text);
	char rest[SITE_MOST];

	if (have > columns && columns) {
		strcpy(rest, behind(text, have - columns + 1));
		strcpy(stpcpy(text, ELLIPSIS), rest);
	}
}

char *gm_text_fit(char *text, size_t columns)
{
	if (columns_of(text) > columns && columns)
		strcpy(behind(text, columns - 1), ELLIPSIS);
	return text;
}

/* Drop directories of @place from the left until @place has at most @columns, or no directory is left. */
static void shorten_place(char *place, size_t columns)
{
	char *slash = place[0] ? place + 1 : place, rest[SITE_MOST];

	if (columns_of(place) <= columns || !strchr(place, '/'))
		return;
	while (columns_of(slash) + 3 > columns && strchr(slash + 1, '/'))
		slash = strchr(slash + 1, '/');
	strcpy(rest, slash);
	strcpy(stpcpy(place, " (" ELLIPSIS), rest);
}

/* Drop parameters without a closing bracket: gm_frame_text cut the name there. */
static void close_parameters(char *name)
{
	unsigned int depth = 0;
	char *from = name;

	for (char *at = name; *at; at++) {
		if (*at == '(' && !depth++)
			from = at;
		depth -= *at == ')' && depth;
	}
	if (depth && strlen(from) > 5)
		strcpy(from, "(" ELLIPSIS ")");
}

/* Return 1 if a bracket opens at @at, -1 if one closes, else 0. */
static int bracket(const char *at)
{
	return strchr("([{<", *at) ? 1 : strchr(")]}>", *at) ? -1 : 0;
}

/* Cut the abridged parameters from a C++ name. Return the name behind its result type. */
static char *bare(char *name)
{
	char *end = strstr(name, "(" ELLIPSIS ")"), *from = name;
	int depth = 0;

	if (end)
		*end = '\0';
	if (strstr(name, "operator"))
		return name;
	for (char *at = name; *at; at++) {
		depth += bracket(at);
		if (*at == ' ' && !depth && at[1] && at[1] != '[')
			from = at + 1;
	}
	return from;
}

/* Drop scopes of @name from the left until @name has at most @columns, or only the function is left. Returns @name. */
static char *without_scopes(char *name, size_t columns)
{
	char *from = name, rest[SITE_MOST];
	int depth = 0;

	for (char *at = name; *at && columns_of(from) + (from > name) > columns; at++) {
		depth += bracket(at);
		if (!depth && at > name && !strncmp(at, "::", 2))
			from = at;
	}
	if (from > name) {
		strcpy(rest, from);
		strcpy(stpcpy(name, ELLIPSIS), rest);
	}
	return name;
}

const char *gm_site_fit(const char *site, size_t columns, char to[GM_SITE_FIT])
{
	char whole[SITE_MOST], place[SITE_MOST], shorter[SITE_MOST], *name = whole, *at;
	size_t left, least;

	strcpy(whole, gm_show_clean(site));
	if (columns_of(whole) <= columns)
		return strcpy(to, whole);
	at = place_of(whole);
	strcpy(place, at);
	*at = '\0';
	if ((at = strstr(whole, " [clone ")))
		*at = '\0';
	if (whole[0] != '<' && !has_place(whole)) {
		abridge(whole, shorter, sizeof(shorter));
		name = shorter;
	}
	close_parameters(name);
	if (columns_of(name) + columns_of(place) > columns) {
		shorten_place(place, columns_of(name) < columns ? columns - columns_of(name) : 1);
		at = bare(name);
		name = columns_of(name) + columns_of(place) > columns ? at : name;
	}
	least = columns_of(name) < NAME_LEAST ? columns_of(name) : NAME_LEAST;
	if (place[0] && columns > least + 4)
		cut_left(place + 2, columns - least - 2);
	left = columns - (columns_of(place) < columns ? columns_of(place) : columns);
	at = without_scopes(name, left);
	gm_text_fit(at, left);
	strcpy(stpcpy(to, at), place);
	gm_text_fit(to, columns);
	return to;
}
