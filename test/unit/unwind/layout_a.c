/*
 * layout_a.c - one of two libraries alike in every address, but for the size of a frame: loaded
 * where the other one was unloaded, its rules must not be the other's (see layout_b.c).
 */
#ifndef FRAME
#define FRAME "24"
#define CFA "32"
#endif

void layout_call(void (*callback)(void *), void *arg);
__asm__(".globl layout_call\n"
	".type layout_call, %function\n"
	"layout_call:\n"
	"	.cfi_startproc\n"
#if defined(__aarch64__)
	"	stp x29, x30, [sp, #-" CFA "]!\n"
	"	.cfi_def_cfa_offset " CFA "\n"
	"	.cfi_offset 29, -" CFA "\n"
	"	.cfi_offset 30, -" FRAME "\n"
	"	mov x2, x0\n"
	"	mov x0, x1\n"
	"	blr x2\n"
	"	ldp x29, x30, [sp], #" CFA "\n"
	"	.cfi_restore 29\n"
	"	.cfi_restore 30\n"
	"	.cfi_def_cfa_offset 0\n"
#else
	"	subq $" FRAME ", %rsp\n"
	"	.cfi_def_cfa_offset " CFA "\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	call *%rax\n"
	"	addq $" FRAME ", %rsp\n"
	"	.cfi_def_cfa_offset 8\n"
#endif
	"	ret\n"
	"	.cfi_endproc\n"
	".size layout_call, . - layout_call\n");
