/*
 * fail.c - injected failures: which call of which entry returns an error instead of doing its work.
 *
 * A short list of rules, in order; the first that names the entry and has calls left decides. The
 * list has a lock of its own (a leaf: nothing is called under it), since it is asked before
 * fc.lock is taken. Any thread; no signal context.
 */
#include "test/fakecuda/fail.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/internal.h"

#define MAX_RULES 64

struct rule {
	char entry[64];
	long skip, times;	/* times -1: for ever */
	CUresult error;
};

static struct rule rules[MAX_RULES];
static atomic_size_t n_rules;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool matches(const struct rule *rule, const char *name, const char *base)
{
	return rule->times && (!strcmp(rule->entry, name) || !strcmp(rule->entry, base));
}

CUresult fc_fail_check(const char *name, const char *base)
{
	CUresult r = CUDA_SUCCESS;

	if (!atomic_load_explicit(&n_rules, memory_order_acquire))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_rules; i++) {
		struct rule *rule = &rules[i];

		if (!matches(rule, name, base))
			continue;
		if (rule->skip > 0) {
			rule->skip--;
			continue;
		}
		if (rule->times > 0)
			rule->times--;
		r = rule->error;
		break;
	}
	pthread_mutex_unlock(&lock);
	if (r)
		fc_log("%s: injected failure %d", name, (int)r);
	return r;
}

FC_EXPORT void fakecuda_fail(const char *entry, long skip, long times, int error)
{
	pthread_mutex_lock(&lock);
	if (!entry) {
		n_rules = 0;
	} else if (n_rules < MAX_RULES && strlen(entry) < sizeof(rules[0].entry)) {
		struct rule *rule = &rules[n_rules];

		strcpy(rule->entry, entry);
		rule->skip = skip;
		rule->times = times;
		rule->error = (CUresult)error;
		n_rules++;
	} else {
		fc_log("fakecuda_fail: no room for a rule on %s", entry);
	}
	pthread_mutex_unlock(&lock);
}

int fc_fail_parse(const char *text)
{
	char buf[4096], *rest = buf, *item;

	if (strlen(text) >= sizeof(buf))
		return -EINVAL;
	strcpy(buf, text);
	while ((item = strsep(&rest, ","))) {
		char *name = strsep(&item, ":");
		long v[3];

		for (int i = 0; i < 3; i++) {
			char *field = strsep(&item, ":"), *end;

			if (!field || !*field)
				return -EINVAL;
			v[i] = strtol(field, &end, 0);
			if (*end)
				return -EINVAL;
		}
		if (item)
			return -EINVAL;
		fakecuda_fail(name, v[0], v[1], (int)v[2]);
	}
	return 0;
}
