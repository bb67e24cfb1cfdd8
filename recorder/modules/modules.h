/*
 * modules.h - which object (executable, library) an address belongs to, and which of them called a
 * hook.
 *
 * Every object in which a caller's address was seen gets a number from the journal. An object
 * loaded where another one was unloaded gets a number of its own (range, link_map, name and build
 * id are compared after every dlclose); the same object loaded again at the same place keeps its
 * number.
 *
 * Nothing here calls malloc, dladdr or dl_iterate_phdr, or reads an address that it has not proved
 * readable; errno is kept. Objects are found by object.h. A look-up takes no lock but for an object
 * that was not seen since the last dlclose; that one is waited for a bounded time.
 *
 * Thread context: any thread after gm_modules_init. Signal context: allowed; a handler that
 * interrupts the publication of a module gets 0 for an object that was not seen before.
 */
#ifndef GM_RECORDER_MODULES_H
#define GM_RECORDER_MODULES_H

#include <stdatomic.h>
#include <stdint.h>

#define GM_BUILD_ID_MAX 32

struct gm_module_info {
	const char *path;		/* absolute if it could be made so; valid during the call */
	uint64_t base;			/* load bias: run-time address minus the file's p_vaddr */
	uint64_t start, end;		/* mapped range */
	uint8_t build_id[GM_BUILD_ID_MAX];
	unsigned int build_id_bytes;	/* 0: the file has none */
};

/* Callbacks: publish assigns the numbers; the other two may be NULL. They are called under a lock
 * of modules.c, in whatever thread met the object first, and must not unwind or look up modules. */
struct gm_module_sink {
	uint16_t (*publish)(const struct gm_module_info *info);	/* 0: full */
	void (*unloaded)(uint16_t module);
	void (*loaded_again)(uint16_t module);	/* after unloaded */
};

/* Once, before anything else: learns the executable's path (/proc/self/exe, else the kernel's
 * AT_EXECFN, else program_invocation_name) and what this kernel lets us read. @sink is copied. */
void gm_modules_init(const struct gm_module_sink *sink);

/* The module that @pc (a return address) lies in; 0 when it lies in none (JIT code), when the
 * journal is full or before gm_modules_init. @ret_offset (may be NULL): @pc minus the load bias,
 * the address as the file's symbol table has it; @pc itself when the module is 0. */
uint16_t gm_modules_lookup(uintptr_t pc, uint64_t *ret_offset);

/* The module that made the call: the first on the stack that does not merely pass calls on (as
 * libcuda, libcudart, libcupti, libgpumem and the loader do). @return_address:
 * __builtin_return_address(0) of the hook, which must still be on the stack; where its module
 * already is the one, nothing is unwound. At most 32 frames are read; if all of them pass calls on,
 * it is the hook's direct caller. Code in no module (JIT) is a caller as any other, with the number
 * 0. Returns as gm_modules_lookup; @ret_pc (may be NULL) is the return address in that module. */
uint16_t gm_modules_caller(const void *return_address, uintptr_t *ret_pc);

/* The same for a stack that was walked already: the module of the first of @pcs that does not
 * merely pass calls on; if all do, of the first one. */
uint16_t gm_modules_asker(const uintptr_t *pcs, int count);

/* A number that every gm_modules_generation_bump increments: what was derived from addresses under
 * another number may be wrong now. */
extern _Atomic(uint32_t) gm_modules_epoch __attribute__((visibility("hidden")));
static inline uint32_t gm_modules_generation(void)
{
	return atomic_load_explicit(&gm_modules_epoch, memory_order_acquire);
}

/* Objects may have changed: known ones are checked again before they are used, the sink is told
 * which were unloaded, and cached unwind rules are dropped. Called by the dlclose hook, before and
 * after the real call. */
void gm_modules_generation_bump(void);

#endif
