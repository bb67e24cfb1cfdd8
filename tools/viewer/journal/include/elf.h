/* elf.h - the machines whose registers have names. */
#define EM_X86_64 62
#define EM_AARCH64 183
