/*
 * nobuildid.c - a library without a build id, with what a symbol table can say about code: a
 * function with its size, labels without one, two names at one place, a gap that is nobody's.
 */
int nobuildid_call(int (*callback)(void));
int nobuildid_call(int (*callback)(void))
{
	return callback() + 1;
}

__asm__(".text\n"
	".balign 64\n"
	".globl shape_sized, shape_alias, shape_label, shape_far, shape_end\n"
	".weak shape_alias\n"
	".type shape_sized, @function\n"
	".type shape_alias, @function\n"
	".type shape_inner, @function\n"
	"shape_alias:\n"
	"shape_sized: .fill 16, 1, 0x90\n"
	"shape_inner: .fill 4, 1, 0x90\n"
	".size shape_inner, 4\n"
	".fill 12, 1, 0x90\n"
	".size shape_sized, 32\n"
	".size shape_alias, 32\n"
	"shape_gap: .fill 32, 1, 0x90\n"		/* a local label: nobody's name */
	"shape_label: .fill 64, 1, 0x90\n"		/* global, without a size */
	".fill 20000, 1, 0x90\n"			/* farther than a label reaches */
	"shape_end: ret\n");
