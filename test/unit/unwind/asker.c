/* asker.c - a library that asks for something through another one. */
void ask(void (*through)(void (*)(void *), void *), void (*callback)(void *), void *arg);

void ask(void (*through)(void (*)(void *), void *), void (*callback)(void *), void *arg)
{
	through(callback, arg);
	__asm__ volatile("" : : : "memory");
}
