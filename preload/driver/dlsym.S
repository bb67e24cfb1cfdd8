/*
 * dlsym.S - void *dlsym(void *handle, const char *name): a tail jump, so that the real dlsym sees the
 * return address of the program's call.
 *
 * RTLD_NEXT and RTLD_DEFAULT mean "from the caller's place in the search order". If a wrapper called the
 * real dlsym, the wrapper would be the caller. RTLD_NEXT would then find the program's own symbol, and an
 * interposer that calls the result would call itself for ever (an OpenMP runtime in `import torch` hung
 * like that). gm_dlsym_route (resolve.c) returns the address to jump to.
 *
 * Thread, signal and fork context: dlsym's own.
 */
#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

	.text
	.globl	dlsym
	.type	dlsym, %function
	.p2align 4
dlsym:
#if defined(__x86_64__)
	.cfi_startproc
	_CET_ENDBR
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	gm_dlsym_route
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	jmp	*%rax
	.cfi_endproc
#elif defined(__aarch64__)
	.cfi_startproc
	hint	#34				/* bti c */
	stp	x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	bl	gm_dlsym_route
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_restore 29
	.cfi_restore 30
	.cfi_def_cfa_offset 0
	br	x16
	.cfi_endproc
#else
#error "x86-64 or aarch64"
#endif
	.size	dlsym, . - dlsym
	.section .note.GNU-stack, "", %progbits
