/*
 * libnextlast.c - the definition that libnextfirst.c is to find.
 */
#pragma GCC visibility push(default)
int next_probe(int depth);
int cuNextProbe(int depth);

int next_probe(int depth)
{
	return 100 + depth;
}

int cuNextProbe(int depth)
{
	return 200 + depth;
}
