/*
 * modules.h - find the object (executable, library) that holds an address, and the object that called a
 * hook.
 *
 * An object gets a number from the journal when the address of a caller in it is first seen. After every
 * dlclose range, link_map, name and build id are compared: another object at the same place gets another
 * number; the same object loaded again at the same place keeps its number.
 *
 * Nothing here calls malloc, dladdr or dl_iterate_phdr. Every address is proved readable before it is read,
 * and errno is kept. object.h finds the objects. A look-up takes a lock only for an object that was not seen
 * since the last dlclose, and waits for that lock for a limited time.
 *
 * Thread context: any thread after gm_modules_init. Signal context: allowed; a handler that interrupts the
 * publication of a module gets 0 for an object that was not seen before.
 */
#ifndef GM_RECORDER_MODULES_H
#define GM_RECORDER_MODULES_H

#include <stdatomic.h>
#include <stdint.h>

#define GM_BUILD_ID_MAX 32

struct gm_module_info {
	const char *path;		/* absolute if possible; valid during the call */
	uint64_t base;			/* load bias: run-time address minus the file's p_vaddr */
	uint64_t start, end;		/* mapped range */
	uint8_t build_id[GM_BUILD_ID_MAX];
	unsigned int build_id_bytes;	/* 0: the file has none */
};

/* Callbacks. publish assigns the numbers; the other two may be NULL. They run under a lock of modules.c, in
 * the thread that met the object first, and must not unwind or look up modules. */
struct gm_module_sink {
	uint16_t (*publish)(const struct gm_module_info *info);	/* 0: full */
	void (*unloaded)(uint16_t module);
	void (*loaded_again)(uint16_t module);	/* after unloaded */
};

/* Find the path of the executable (/proc/self/exe, else the kernel's AT_EXECFN, else
 * program_invocation_name) and learn which ways of reading memory work here. Call once, before any other
 * function. @sink is copied. */
void gm_modules_init(const struct gm_module_sink *sink);

/* Return the module that contains @pc (a return address); 0 when none does (JIT code), when the journal is
 * full, or before gm_modules_init. @ret_offset (may be NULL): @pc minus the load bias, which is the address
 * in the file's symbol table; @pc itself when the module is 0. */
uint16_t gm_modules_lookup(uintptr_t pc, uint64_t *ret_offset);

/* Return the module that made the call: the first module on the stack that does not merely pass calls on,
 * as libcuda, libcudart, libcupti, libgpumem and the loader do. @return_address is
 * __builtin_return_address(0) of the hook, which must still be on the stack. If the module of
 * @return_address is the answer, no unwind is needed. At most 32 frames are read; if all of them pass calls
 * on, the answer is the hook's direct caller. Code in no module (JIT) counts as a caller with number 0.
 * Returns as gm_modules_lookup; @ret_pc (may be NULL) is the return address in that module. */
uint16_t gm_modules_caller(const void *return_address, uintptr_t *ret_pc);

/* As gm_modules_caller, if the answer is the same for every call from that object; 0 if it is not. */
uint16_t gm_modules_of_caller(const void *return_address);

/* As gm_modules_caller, for a stack that has been walked: return the module of the first of @pcs that does
 * not merely pass calls on; if all do, the module of the first. */
uint16_t gm_modules_asker(const uintptr_t *pcs, int count);

/* The number of the generation, which every gm_modules_forget increments. Results that were derived
 * from addresses in another generation may be wrong now. */
extern _Atomic(uint32_t) gm_modules_epoch __attribute__((visibility("hidden")));
static inline uint32_t gm_modules_generation(void)
{
	return atomic_load_explicit(&gm_modules_epoch, memory_order_acquire);
}

/* Begin a new generation, because objects may have changed. Known objects are checked again before use, the
 * sink is told which were unloaded, and cached unwind rules are dropped. The dlclose hook calls this before
 * and after the real call. */
void gm_modules_generation_bump(void);

/* The same without the sink: where nothing is recorded, as in a forked child, which has no journal. */
void gm_modules_forget(void);

#endif
