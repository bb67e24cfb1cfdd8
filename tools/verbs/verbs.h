/*
 * verbs.h - the verbs of gpumem, from their table. A verb gets its own argv (argv[0] is its name) and
 * returns the exit status, an enum gm_exit; `run` returns what the child did.
 */
#ifndef GM_TOOLS_VERBS_H
#define GM_TOOLS_VERBS_H

#define GM_OPT(...)
#define GM_VERB(name, ...) int gm_verb_##name(int argc, char **argv);
#include "tools/verbs/verbs.def"

#endif
