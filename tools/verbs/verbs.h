/*
 * verbs.h - the verbs of gpumem, one file each. A verb gets its own argv (argv[0] is its name) and
 * returns the exit status: 0 done, 1 the check failed, 2 wrong use, 3 unreadable input; `run`
 * returns what the child did.
 */
#ifndef GM_TOOLS_VERBS_H
#define GM_TOOLS_VERBS_H

enum gm_exit { GM_EXIT_OK, GM_EXIT_FAILED, GM_EXIT_USAGE, GM_EXIT_INPUT };

int gm_verb_run(int argc, char **argv);		/* run.c */
int gm_verb_snapshot(int argc, char **argv);	/* snapshot.c */
int gm_verb_options(int argc, char **argv);	/* options.c */
int gm_verb_replay(int argc, char **argv);	/* replay.c */
int gm_verb_recover(int argc, char **argv);	/* recover.c */
int gm_verb_summary(int argc, char **argv);	/* summary.c */
int gm_verb_events(int argc, char **argv);	/* events.c */
int gm_verb_leaks(int argc, char **argv);	/* leaks.c */
int gm_verb_diff(int argc, char **argv);	/* diff.c */
int gm_verb_flame(int argc, char **argv);	/* flame.c */
int gm_verb_check(int argc, char **argv);	/* check.c */
int gm_verb_convert(int argc, char **argv);	/* convert.c */
int gm_verb_symbolize(int argc, char **argv);	/* symbolize.c */
int gm_verb_top(int argc, char **argv);		/* top.c */
int gm_verb_merge(int argc, char **argv);		/* merge.c */
int gm_verb_help(int argc, char **argv);		/* main.c */

#endif
