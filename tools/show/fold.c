/*
 * fold.c - user code first: what of a stack is not the program's, and names that are short: see stacks.h. One thread.
 *
 * The page has the same rules and the same tables: tools/viewer/src/model/stacks.js. test/viewer/test_stacks.mjs
 * compares what both make of real stacks.
 */
#include <string.h>

#include "tools/read/value.h"
#include "tools/show/stacks.h"

#define SHORT_ENOUGH 40u		/* letters of a name that stays as it is */

static bool every;

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

/* Does @text begin as @pattern does, in which one * stands for anything? */
static bool begins(const char *text, const char *pattern)
{
	size_t fixed = strcspn(pattern, "*");

	return !strncmp(text, pattern, fixed) && (!pattern[fixed] || strstr(text + fixed, pattern + fixed + 1));
}

/* PyTorch's dispatcher, and what binds C++ to Python. */
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
	if (frame->python)
		return GM_FOLD_NOT;
	if (frame->sort == GM_FRAME_PLUMBING)
		return GM_FOLD_ALLOCATOR;
	if (begins(frame->module, "python") || begins(frame->module, "libpython"))
		return GM_FOLD_INTERPRETER;
	return is_dispatcher(frame->name) ? GM_FOLD_DISPATCHER : GM_FOLD_NOT;
}

/* Does @name end as a place does, ":88)"? */
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
 * Of "operator<<" and the like at @text, as long as it is: none of its letters is a bracket. 0: it is no such name. The
 * letter behind it tells operator<< <int> from operator< and its <int>, which some demanglers write without a space.
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

/* Behind the bracket that closes the one at @open; the end, if none does. */
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

/* The parameters that end @text, from their bracket on; NULL: none do. */
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

void gm_frame_shorten(const char *name, char *ret, size_t room)
{
	static const char left_out[] = "<\u2026>";
	const char *at = name;
	unsigned int depth = 0;
	size_t n = 0;
	char *end;

	if (strlen(name) < SHORT_ENOUGH || name[0] == '<' || has_place(name)) {
		strncpy(ret, name, room - 1);
		ret[room - 1] = '\0';
		return;
	}
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
