/*
 * rules.c - which rules of reuse are switched off, in a build for tests (see allocator/rules.h).
 *
 * Thread context: once, when the library is loaded.
 */
#define GM_TEST_RULES 1
#include <stdlib.h>
#include <string.h>

#include "allocator/rules.h"

uint64_t gm_rules_off;
uint32_t gm_rules_single;
uint32_t gm_rules_handles;
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

static uint32_t number(const char *variable)
{
	const char *text = getenv(variable);

	return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void read_environment(void)
{
	gm_rules_read(getenv("GM_TEST_OFF"));
	gm_rules_single = number("GM_TEST_SINGLE");
	gm_rules_handles = number("GM_TEST_HANDLES");
	gm_rules_patience_ms = number("GM_TEST_PATIENCE");
}
