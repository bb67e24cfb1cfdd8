/* notables.c - compiled without unwind tables: where a stack must end. */
void notables_call(void (*callback)(void *), void *arg);

void notables_call(void (*callback)(void *), void *arg)
{
	callback(arg);
	__asm__ volatile("" : : : "memory");	/* not a tail call */
}
