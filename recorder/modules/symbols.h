/*
 * symbols.h - names of native frames, from the ELF symbol tables of their modules.
 *
 * Frames are captured as (module, offset) without a name. This code names them in the order of their
 * capture, one module at a time: it opens the module's file by its path, checks the build id (or, without
 * one, compares the headers with those in memory), reads the symbol table once by pread, and interns the
 * names. Names stay as they are in the file, because demangling and lines belong to the tools. JIT code,
 * the vDSO and modules that are no longer at their paths get no names.
 *
 * No hook and no crash handler waits for this code, because it holds no lock except, for each name, the
 * intern lock. After gm_elf_files_stop (a thread has crashed) it opens and reads no file. It calls no malloc;
 * it maps at most 8 MB while there is work, and unmaps them afterwards.
 *
 * Thread context: the names thread (preload/triggers/helper.c); without one, the thread that writes a
 * snapshot. A second thread at the same time finds nothing to do. Signal context: none, because files are
 * opened.
 */
#ifndef GM_RECORDER_SYMBOLS_H
#define GM_RECORDER_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

/* Name frames for about @limit_ns nanoseconds. The next call continues. Returns true when there is more to
 * do. */
bool gm_symbols_work(uint64_t limit_ns);

#endif
