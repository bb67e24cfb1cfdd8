/* linux/futex.h - what the kernel writes into a robust mutex. */
#define FUTEX_OWNER_DIED 0x40000000
#define FUTEX_TID_MASK 0x3fffffff
