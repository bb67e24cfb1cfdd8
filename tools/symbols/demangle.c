/*
 * demangle.c - demangle C++ and Rust names: see symbols.h. One thread.
 *
 * A mangled name can repeat its own parts, so a short one can stand for terabytes. The demangler passes the text piece
 * by piece to a callback, which jumps out of the demangler when the text is too long. The jump leaks nothing, because
 * with a callback the demangler allocates only on the stack.
 */
#include "tools/symbols/symbols.h"

#include <setjmp.h>
#include <string.h>

#define SYMBOL_MOST 8192u		/* bytes; the depth of the demangler's recursion grows with the length */
#define TEXT_MOST 16384u

#if __has_include(<libiberty/demangle.h>)
#include <libiberty/demangle.h>

#define SHORT 1000u			/* bytes; longer names may exceed the demangler's own limit on recursion */

struct text {
	char at[TEXT_MOST];
	size_t length;
	jmp_buf too_long;
};
static struct text text;

static void take(const char *piece, size_t length, void *arg)
{
	(void)arg;
	if (length >= sizeof(text.at) - text.length)
		longjmp(text.too_long, 1);
	memcpy(text.at + text.length, piece, length);
	text.length += length;
}

/* Demangle to @text. Return 0 if @symbol is not mangled, or too long. Rust comes first, because older Rust names are
 * also C++ names. */
static int demangle(const char *symbol, int options)
{
	text.length = 0;
	if (setjmp(text.too_long))
		return 0;
	if (rust_demangle_callback(symbol, options, take, NULL))
		return 1;
	text.length = 0;
	return cplus_demangle_v3_callback(symbol, options, take, NULL);
}

const char *gm_demangle(const char *symbol)
{
	size_t length = strnlen(symbol, SYMBOL_MOST + 1);
	int options = DMGL_PARAMS | DMGL_ANSI;

	if (symbol[0] != '_' || (symbol[1] != 'Z' && symbol[1] != 'R') || length > SYMBOL_MOST)
		return symbol;
	if (length > SHORT)
		options |= DMGL_NO_RECURSE_LIMIT;
	if (!demangle(symbol, options) || !text.length)
		return symbol;
	text.at[text.length] = '\0';
	return text.at;
}

#else

const char *gm_demangle(const char *symbol)
{
	return symbol;
}

#endif
