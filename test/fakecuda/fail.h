/*
 * fail.h - injected failures: which call of which entry returns an error instead of doing its work.
 */
#ifndef FC_FAIL_H
#define FC_FAIL_H

#include "test/fakecuda/internal.h"

/* fc_fail_check - the error that this call of @name (base name @base) must return, or 0. Counts the
 * rule down. Any thread, no lock. */
CUresult fc_fail_check(const char *name, const char *base);

/* fc_fail_parse - the rules of FAKECUDA_FAIL, "entry:skip:times:error[,...]". Returns 0, or -EINVAL
 * with the good rules before the bad one in force. */
int fc_fail_parse(const char *text);

#endif
