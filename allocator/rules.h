/*
 * rules.h - the rules of reuse, with a switch for each, so that a test can show what breaks without it.
 *
 * In the library for users every rule is on, and gm_rule() is a constant. Only a build with GM_TEST_RULES=1 (make
 * RULES=1, build/rules/, with test/rules/) has switches: it reads the words to switch off from the environment
 * variable GM_TEST_OFF when it is loaded.
 *
 * gm_rule is asked for each rule where the rule is applied, for most rules in a single place. Thread context: any.
 */
#ifndef GM_ALLOCATOR_RULES_H
#define GM_ALLOCATOR_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* GM_RULE(NAME, "word", what breaks without it) */
#define GM_RULES(GM_RULE) \
	GM_RULE(SEAL, "seal", "a free is marked before the next submission") \
	GM_RULE(WAIT_SEALED, "wait-sealed", "a thread waits only for marks that were made in time") \
	GM_RULE(WAIT_HOST_FREES, "wait-host-frees", "no thread waits for a free in stream order") \
	GM_RULE(WAIT_OWN, "wait-own", "a thread waits only for work for which its own frees would have waited") \
	GM_RULE(ONE_CONTEXT, "one-context", \
		"memory is reused early only in the only stream's context, while there is no other") \
	GM_RULE(LIMBO, "limbo", "a freed block waits until its context has passed the free") \
	GM_RULE(OWN_CONTEXT, "own-context", "a freed block waits for no context that cannot touch it") \
	GM_RULE(OWN_STREAM, "own-stream", "stream-ordered memory is free when its stream alone is past the free") \
	GM_RULE(PEERS, "peers", "a freed block waits for every context that was allowed to touch it") \
	GM_RULE(TRANSITION, "transition", "the first work of another stream waits for frees in single-stream mode") \
	GM_RULE(TRANSITION_POINT, "transition-point", \
		"that wait ends at the point of the last free, not at the end of the stream") \
	GM_RULE(TRANSITION_EVERY, "transition-every", "every other stream waits, not only the second") \
	GM_RULE(SINGLE_COMPLETE, "single-complete", \
		"single-stream mode comes back when other streams' work is complete") \
	GM_RULE(SINGLE_OTHERS, "single-others", "and if no other stream is given work meanwhile") \
	GM_RULE(SINGLE_LATE, "single-late", "and if no call that had begun before gives one work") \
	GM_RULE(STREAM_DESTROYED, "stream-destroyed", \
		"the end of the only stream ends single-stream mode, because handles are reused") \
	GM_RULE(STREAM_FREE, "stream-free", "cudaFreeAsync of a cudaMalloc pointer is not reused early") \
	GM_RULE(STREAM_ORDER, "stream-order", \
		"in stream order, memory that was freed on another stream waits before it is handed out") \
	GM_RULE(PROGRAMMATIC, "programmatic", "a launch after an early reuse may not overlap its predecessor") \
	GM_RULE(OTHER_WRITERS, "other-writers", "no early reuse while a writer that is no work of a stream may write") \
	GM_RULE(CAPTURE_EVENTS, "capture-events", "no context-wide event while a stream captures") \
	GM_RULE(CAPTURE_RELAXED, "capture-relaxed", "our own driver calls are made in relaxed mode") \
	GM_RULE(CAPTURE_PERMISSION, "capture-permission", "during a capture the driver decides on malloc and free") \
	GM_RULE(CAPTURE_HOLD, "capture-hold", "memory that is freed during a capture is not reused before its end") \
	GM_RULE(CAPTURED_WORK, "captured-work", "captured work is not work; launching the graph is") \
	GM_RULE(HOST_FUNCTION, "host-function", "inside a host function malloc and free fail as the driver's own") \
	GM_RULE(HOST_BARRIER, "host-barrier", "a free waits for pending work whose results the host can see") \
	GM_RULE(GROWTH, "growth", "no thread reports out of memory while another thread grows or flushes") \
	GM_RULE(AWAIT, "await", "a thread waits for freed memory in use by the GPU before it reports out of memory") \
	GM_RULE(SCARCE, "scarce", "where memory is scarce, frees wait as the driver's own") \
	GM_RULE(PAGES, "pages", "a page is not unmapped before the host has seen the GPU past its last free") \
	GM_RULE(FLUSH, "flush", "a call that fails for want of memory is repeated after a flush")

enum gm_rule_name {
#define GM_RULE(name, word, what) GM_RULE_##name,
	GM_RULES(GM_RULE)
#undef GM_RULE
	GM_RULE_COUNT
};

#if GM_TEST_RULES
extern uint64_t gm_rules_off;		/* a bit for each rule; set when the library is loaded */
extern uint32_t gm_rules_single;	/* seals between two steps of reuse.c; 0: the usual number */
extern uint32_t gm_rules_handles;	/* in place of HANDLES_OF_HEAP (cache_pages.c), on any device; 0: unused */
extern uint32_t gm_rules_patience_ms;	/* wait of cache_await.c without progress; 0: the usual time */
void gm_rules_read(const char *words);	/* "seal,limbo"; NULL: none */
static inline bool gm_rule(enum gm_rule_name rule)
{
	return !(gm_rules_off >> rule & 1);
}
#else
#define gm_rule(rule) true
#define gm_rules_single 0u
#define gm_rules_handles 0u
#define gm_rules_patience_ms 0u
#endif

#endif
