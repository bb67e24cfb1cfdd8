/*
 * manual_library.c - libgpumem(7): what the library does, its options from their own table.
 */
#include <stdint.h>

#include "tools/verbs/manual.h"

static const struct { const char *name, *initial, *unit, *help; } options[] = {
#define GM_OPTION(name, type, dflt, min, max, unit, help) { #name, dflt, unit, help },
#include "preload/options/options.def"
};

static const struct call { const char *call, *what; } calls[] = {
	{ "gpumem_snapshot(path)", "write a snapshot of now" },
	{ "gpumem_memory_stats(device, stats, max)",
	  "every statistic of torch.cuda.memory_stats()" },
	{ "gpumem_memory_summary(device, stream)", "the table of torch.cuda.memory_summary()" },
	{ "gpumem_memory_allocated(device)", "bytes that the program holds" },
	{ "gpumem_memory_reserved(device)", "bytes taken from the driver for it" },
	{ "gpumem_max_memory_allocated(device)",
	  "the same at most, since the start or the last reset" },
	{ "gpumem_max_memory_reserved(device)", "likewise" },
	{ "gpumem_reset_peak_memory_stats(device)", "peaks begin anew" },
	{ "gpumem_reset_accumulated_memory_stats(device)", "sums and counters begin anew" },
	{ "gpumem_empty_cache()", "give back what is cached and not in use" },
	{ "gpumem_set_per_process_memory_fraction(fraction, device)",
	  "the most that this process may take" },
	{ "gpumem_get_per_process_memory_fraction(device)", "what was set, or the options say" },
	{ "gpumem_record_memory_history(enabled, context, stacks, max_entries)",
	  "what is recorded from now on, as torch.cuda.memory._record_memory_history()" },
	{ "gpumem_annotate(text)", "put a text into the history" },
	{ "gpumem_torch_malloc(size, device, stream)",
	  "for torch.cuda.memory.CUDAPluggableAllocator" },
	{ "gpumem_torch_free(ptr, size, device, stream)", "likewise" },
	{ "gpumem_register_oom_observer(fn, arg)",
	  "be called when an allocation fails for want of memory" },
};

static void put_head(FILE *out, const char *head, const char *rest)
{
	fputs(".TP\n\\fB", out);
	gm_manual_words(out, head, SIZE_MAX);
	fputs("\\fR", out);
	gm_manual_words(out, rest, SIZE_MAX);
	putc('\n', out);
}

static void put_options(FILE *out)
{
	fputs(".SH OPTIONS\n", out);
	gm_manual_text(out,
		"GPUMEM_<NAME>=value in the environment, name:value,name:value in GPUMEM_CONF, or "
		"--name=value of `gpumem run`. A bad value costs one line on standard error, and the "
		"default is used.");
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		put_head(out, options[i].name, "");
		gm_manual_words(out, options[i].help, SIZE_MAX);
		fputs(".\nValues: ", out);
		gm_manual_words(out, options[i].unit, SIZE_MAX);
		fputs("; default: ", out);
		gm_manual_words(out, options[i].initial[0] ? options[i].initial : "empty",
				SIZE_MAX);
		fputs(".\n", out);
	}
}

void gm_manual_library(FILE *out)
{
	gm_manual_head(out, "libgpumem", "7",
		       "a flight recorder of the GPU memory of CUDA programs");
	fputs(".SH SYNOPSIS\n.B LD_PRELOAD=libgpumem.so\n.I command\n.br\n.B gpumem run \\-\\-\n.I "
	      "command\n"
	      ".PP\n.B #include <gpumem.h>\n.SH DESCRIPTION\n",
	      out);
	gm_manual_text(out,
		       "The library stands between a program and the CUDA driver. It records every "
		       "allocation and free of every library in the process, with its size, kind, "
		       "stream, thread, module and stack, in a journal that outlives the process, and "
		       "writes snapshots as JSON:\n"
		       "\n"
		       "  at exit, if the program ever allocated\n"
		       "  on SIGUSR1, if the program left that signal alone (option signal)\n"
		       "  when memory runs out: the first and the last ones (oom_snapshots)\n"
		       "  when a signal ends the program\n"
		       "  when `gpumem snapshot` asks, or the program itself\n"
		       "\n"
		       "A process that is killed leaves its journal; `gpumem recover` makes the "
		       "snapshot of it, and `gpumem run` does so by itself.");
	put_options(out);
	fputs(".SH API\n", out);
	gm_manual_text(out,
		       "Weak symbols: they may be called with the library absent, and then return "
		       "GPUMEM_ABSENT. The header tells results and errors.");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		put_head(out, calls[i].call, "");
		gm_manual_words(out, calls[i].what, SIZE_MAX);
		putc('\n', out);
	}
	fputs(".SH FILES\n", out);
	put_head(out, "gpumem.COMMAND.PID.REASON.json", "");
	gm_manual_text(out, "A snapshot, where option output says; mode 0600, never overwritten.");
	put_head(out, "/dev/shm/gpumem-UID*/*.journal", "");
	gm_manual_text(
		out,
		"Journals, removed at a clean exit; also below $XDG_RUNTIME_DIR and $TMPDIR, or "
		"where option journal says.");
	fputs(".SH SEE ALSO\n.BR gpumem (1),\n.BR gpumem\\-run (1),\n.BR gpumem\\-recover (1)\n",
	      out);
}
