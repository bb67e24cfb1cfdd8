/*
 * rules.h - the rules of reuse, with a switch for each, so that a test can show what breaks without it.
 *
 * In the library for users every rule is on, and gm_rule() is a constant. Only a build with GM_TEST_RULES=1 (make
 * RULES=1, build/rules/, with test/rules/) has switches: it reads the words to switch off from the environment
 * variable GM_TEST_OFF when it is loaded.
 *
 * The code calls gm_rule where it applies a rule; most rules are applied in a single place. Thread context: any.
 */
#ifndef GM_ALLOCATOR_RULES_H
#define GM_ALLOCATOR_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* GM_RULE(NAME, "word", "what breaks without it") */
#define GM_RULES(GM_RULE) \
	GM_RULE(SEAL, "seal", \
		"A request waits for work that was submitted after the free, and the program " \
		"hangs if that work waits for the request.") \
	GM_RULE(WAIT_SEALED, "wait-sealed", \
		"The same, where the mark of the free was recorded only after that later work.") \
	GM_RULE(WAIT_HOST_FREES, "wait-host-frees", \
		"A request waits for a cudaFreeAsync, which the driver never does, and hangs " \
		"behind a kernel that waits for the host.") \
	GM_RULE(WAIT_OWN, "wait-own", \
		"A thread waits for what another thread freed, and hangs if the work before that " \
		"free waits for the thread's next call.") \
	GM_RULE(ONE_CONTEXT, "one-context", \
		"Work of another context waits for the only stream of this one, and hangs if that " \
		"stream waits for the other context.") \
	GM_RULE(LIMBO, "limbo", "A freed block is handed out while a kernel still writes to it.") \
	GM_RULE(OWN_CONTEXT, "own-context", \
		"A kernel that waits on one device holds up freed memory of all the other " \
		"devices, and requests there fail.") \
	GM_RULE(OWN_STREAM, "own-stream", \
		"A kernel that waits on one stream holds up what other streams freed by " \
		"cudaFreeAsync, and requests fail.") \
	GM_RULE(PEERS, "peers", \
		"A freed block is handed out while another device, which has access to it, still " \
		"reads or writes it.") \
	GM_RULE(TRANSITION, "transition", \
		"The second stream writes to a block that the first one still uses, because it " \
		"was handed out early.") \
	GM_RULE(TRANSITION_POINT, "transition-point", \
		"The second stream waits for work after the last free, too, and hangs if that " \
		"work waits for the second stream.") \
	GM_RULE(TRANSITION_EVERY, "transition-every", \
		"The third stream writes to a block that the first one still uses.") \
	GM_RULE(SINGLE_COMPLETE, "single-complete", \
		"Single-stream mode comes back while another stream still uses memory, which is " \
		"then handed out early.") \
	GM_RULE(SINGLE_OTHERS, "single-others", \
		"The same, where another stream got that work while the library was looking.") \
	GM_RULE(SINGLE_LATE, "single-late", \
		"The same, where the call that gave another stream work had begun before the " \
		"library looked.") \
	GM_RULE(STREAM_DESTROYED, "stream-destroyed", \
		"A new stream with the handle of a destroyed one is taken for it, and its work " \
		"for ordered.") \
	GM_RULE(STREAM_FREE, "stream-free", \
		"Memory of cudaMalloc that cudaFreeAsync freed behind a kernel is handed out " \
		"before that kernel ends.") \
	GM_RULE(STREAM_ORDER, "stream-order", \
		"A stream gets a block back that another stream freed, and still uses.") \
	GM_RULE(PROGRAMMATIC, "programmatic", \
		"A kernel that may overlap its predecessor writes to memory of that " \
		"predecessor's.") \
	GM_RULE(OTHER_WRITERS, "other-writers", \
		"A network card, a disk or another process still writes to a block that was " \
		"handed out early.") \
	GM_RULE(CAPTURE_EVENTS, "capture-events", \
		"An event of the library's invalidates the program's capture.") \
	GM_RULE(CAPTURE_RELAXED, "capture-relaxed", \
		"Any driver call of the library's invalidates a strict capture of the program's.") \
	GM_RULE(CAPTURE_PERMISSION, "capture-permission", \
		"cudaMalloc and cudaFree succeed during a capture in which the driver refuses " \
		"them.") \
	GM_RULE(CAPTURE_HOLD, "capture-hold", \
		"Memory that is freed during a capture is handed out while work before the " \
		"capture still uses it.") \
	GM_RULE(CAPTURED_WORK, "captured-work", \
		"Work that is only captured counts as submitted, and that of the graph's launch " \
		"does not.") \
	GM_RULE(HOST_FUNCTION, "host-function", \
		"cudaMalloc and cudaFree succeed inside a host function, in which the driver " \
		"refuses them.") \
	GM_RULE(HOST_BARRIER, "host-barrier", \
		"The host reads results too early after a cudaFree, which waits for them without " \
		"the library.") \
	GM_RULE(GROWTH, "growth", \
		"A thread is refused memory that another thread is just giving back.") \
	GM_RULE(AWAIT, "await", \
		"A request is refused although memory for it was freed and only waits for the " \
		"GPU.") \
	GM_RULE(SCARCE, "scarce", \
		"Where others have most of a device, memory that is reused late leaves holes, and " \
		"a request is refused that the driver would serve.") \
	GM_RULE(PAGES, "pages", \
		"A page is unmapped while a kernel still uses it, and the kernel fails or writes " \
		"elsewhere.") \
	GM_RULE(FLUSH, "flush", \
		"A module, a pitched block or any other driver call is refused memory that lies " \
		"idle in the cache.")

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
