/*
 * symbols.h - names of native frames, from the ELF symbol tables of their modules.
 *
 * Frames are captured as (module, offset) without a name. Here they are named, in the order of
 * their capture and one module at a time: the module's file is opened by its path and checked by
 * its build id (or, where it has none, by its headers as they are in memory), its symbol table is
 * read once by pread, and the names are interned. Names are as the file has them; demangling and
 * lines belong to the tools. JIT code, the vDSO and modules that are not at their paths any more
 * stay without names.
 *
 * No hook and no crash handler waits for this: it holds no lock except, for each name, the intern
 * lock. After gm_elf_files_stop (a thread has crashed) it opens and reads nothing more. It calls no
 * malloc; its memory is mapped while there is something to do (at most 8 MB) and unmapped afterwards.
 *
 * Thread context: the names thread (preload/triggers/helper.c); where there is none, whichever thread
 * writes a snapshot. A second one at the same time finds nothing to do. Signal context: none (files are opened).
 */
#ifndef GM_RECORDER_SYMBOLS_H
#define GM_RECORDER_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

/* Name frames for about @limit_ns nanoseconds; the next call goes on from there. Returns true
 * when there is more to do. */
bool gm_symbols_work(uint64_t limit_ns);

#endif
