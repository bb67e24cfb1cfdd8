/* pthread.h - the one type that is needed of it is in ../system.h. */
