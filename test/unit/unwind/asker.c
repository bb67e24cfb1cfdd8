/* asker.c - a library that asks for something through another one. Linked so short that its data
 * lie on the file's first page too: that page is mapped twice. */
int asker_data = 42;

void ask(void (*through)(void (*)(void *), void *), void (*callback)(void *), void *arg);

void ask(void (*through)(void (*)(void *), void *), void (*callback)(void *), void *arg)
{
	through(callback, arg);
	__asm__ volatile("" : : : "memory");
}
