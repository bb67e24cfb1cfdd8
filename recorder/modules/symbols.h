/*
 * symbols.h - names of native frames, from the ELF symbol tables of their modules.
 *
 * Frames are captured as (module, offset) without a name. Here they are named, in the order of their
 * capture and a module at a time: its file is opened (by its path, checked by build id; a
 * module that has none: by its headers as they lie in memory), its table read once by pread, the
 * names interned. Names are as the file has them; demangling and lines belong to the tools.
 * JIT code, the vDSO and what is not at its path any more stay unnamed, for good.
 *
 * What a hook, a crash or a fork child does must not wait for this, and does not: it holds no
 * lock but, for each name, the intern lock. It calls no malloc; its memory is mapped while there
 * is something to do (at most 8 MB) and unmapped afterwards.
 *
 * Thread context: the helper thread, or whichever thread writes a snapshot; a second one at the
 * same time finds nothing to do. Signal context: none (files are opened).
 */
#ifndef GM_RECORDER_SYMBOLS_H
#define GM_RECORDER_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

/* Name frames for about @limit_ns; the next call continues what was begun. Returns true
 * when there is more to do. */
bool gm_symbols_work(uint64_t limit_ns);

#endif
