/*
 * symbolize_module.c - one module's frames: symbols, then lines (symbolize_module.h). In the worker.
 *
 * A function's own name is the symbol table's where it has one (it knows clones and parts); what
 * the process recorded comes second, DWARF's third. Names of inlined functions are DWARF's.
 */
#include <stdlib.h>
#include <string.h>

#include "recorder/modules/elf_symbols.h"
#include "tools/symbols/demangle.h"
#include "tools/symbols/dwarf.h"
#include "tools/symbols/symbolize_module.h"

#define NAME_BYTES 16384u

struct module {
	const struct gm_sym_module *module;
	const struct gm_sym_say *say;
	const struct gm_debug_file *symbols;
	struct gm_elf_match *matches;	/* of the frames, in their order; NULL none */
	bool *found;			/* of the frames: DWARF knew them */
	bool any;			/* it knew one */
};

/* A return address: the call lies before it. */
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

/* The symbol of frame @i's function, "" none. Static memory. */
static const char *symbol_of(const struct module *m, size_t i)
{
	static char name[NAME_BYTES];

	if (m->matches && gm_elf_name(&m->symbols->elf, gm_elf_match_name(&m->matches[i]), name,
				      sizeof(name)))
		return name;
	return m->module->frames[i].name;
}

static void say(const struct module *m, size_t i, const char *symbol, const struct gm_level *level)
{
	const struct gm_sym_level said = { gm_demangle(symbol), level->file, level->line,
					   level->inlined };

	m->say->level(m->say->arg, m->module->frames[i].frame, &said);
}

static void found(void *arg, size_t i, const struct gm_level *levels, size_t count)
{
	struct module *m = arg;

	if (m->found[i])
		return;
	m->found[i] = m->any = true;
	for (size_t n = 0; n < count; n++) {
		const char *symbol = n + 1 == count ? symbol_of(m, i) : "";

		say(m, i, symbol[0] ? symbol : levels[n].symbol, &levels[n]);
	}
}

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

const char *gm_symbolize_module(const struct gm_sym_request *request,
				const struct gm_sym_module *module, bool dwarf,
				const struct gm_sym_say *ret_say)
{
	static const struct gm_level plain = { "", "", 0, false };
	struct module m = { .module = module, .say = ret_say };
	struct gm_debug_files files = { .symbols.elf.fd = -1, .dwarf.elf.fd = -1 };
	struct gm_build_id id;
	const char *why = "";

	if (!gm_build_id_parse(module->build_id, &id)) {
		why = "it has no build id to know its file by";
	} else {
		gm_debug_files_find(request->places, module->path, &id, &files);
		if (files.symbols.elf.fd >= 0) {
			m.symbols = &files.symbols;
			m.matches = find_symbols(module, &files.symbols.elf);
		}
		if (files.symbols.elf.fd < 0 && files.dwarf.elf.fd < 0)
			why = "no file with its build id";
		else if (files.dwarf.elf.fd < 0)
			why = "no debug information";
		else if (!dwarf)
			why = "its debug information could not be digested";
		else
			why = lines(&m, request, &files.dwarf);
	}
	for (size_t i = 0; i < module->count; i++) {
		const char *symbol = m.found && m.found[i] ? "" : symbol_of(&m, i);

		if (symbol[0])
			say(&m, i, symbol, &plain);
	}
	free(m.matches);
	free(m.found);
	gm_debug_files_close(&files);
	return why;
}
