/*
 * rules.c - which rules of reuse are switched off, in a build for tests (see rules.h).
 *
 * In the ordinary build there is nothing here. Thread context: once, at start.
 */
#include "allocator/rules.h"

#if GM_TEST_RULES
#include <stddef.h>
#include <string.h>

uint64_t gm_rules_off;
uint32_t gm_rules_single;
uint32_t gm_rules_patience_ms;

static const char *const rule_words[GM_RULE_COUNT] = {
#define GM_RULE(name, word, what) [GM_RULE_##name] = word,
	GM_RULES(GM_RULE)
#undef GM_RULE
};

void gm_rules_read(const char *words)
{
	gm_rules_off = 0;
	while (words && *words) {
		size_t length = strcspn(words, ",");

		for (unsigned int i = 0; i < GM_RULE_COUNT; i++)
			if (strlen(rule_words[i]) == length && !strncmp(rule_words[i], words, length))
				gm_rules_off |= UINT64_C(1) << i;
		words += length + (words[length] == ',');
	}
}
#endif
