/*
 * bench_stacks.c - what a whole capture costs a program that has other things in its caches: ns of
 * gm_stacks_capture, and of the native walk and the walk of Python's frames by themselves, warm (one
 * after the other) and cold (between two, the program touches some 900 pages and jumps through 1000
 * places; stacks_load.c has it).
 *
 * Two threads each go through 254 native stacks of 35 to 65 frames; below CPython one thread through
 * 2,540 places in Python code of some 20 frames, each with one of 254 native stacks below.
 *
 *	bench_stacks [python ...]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ftw.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 40			/* through all the paths, for each number */
#define PATHS 254

static int (*start)(const char *directory, int native, int python, int depth);
static int (*begin)(int cold, int shallow);
static void (*what)(int what);
static void (*op)(void);
static int (*result)(double *ret_median, double *ret_mean);

struct numbers { double median[2][2], mean[2][2]; };	/* [cold][what] */

static pthread_barrier_t barrier;

static void *thread(void *arg)
{
	struct numbers *numbers = arg;

	for (int cold = 0; cold < 2; cold++) {
		begin(cold, 0);
		for (int part = 0; part < 2; part++) {
			pthread_barrier_wait(&barrier);
			what(part);
			for (int i = 0; i < (ROUNDS + 2) * PATHS; i++) {
				if (i == 2 * PATHS)
					what(part);
				op();
			}
			result(&numbers->median[cold][part], &numbers->mean[cold][part]);
		}
	}
	return NULL;
}

static void say(const char *name, const char *part, double warm[2], double cold[2])
{
	printf("%-28s %-12s %10.0f %10.0f %10.0f %10.0f\n", name, part, warm[0], warm[1], cold[0],
	       cold[1]);
}

static void run_native(void)
{
	static const char *const parts[] = { "capture", "native walk" };
	struct numbers numbers[2];
	pthread_t other;

	pthread_barrier_init(&barrier, NULL, 2);
	if (pthread_create(&other, NULL, thread, &numbers[0]))
		return;
	thread(&numbers[1]);
	pthread_join(other, NULL);
	for (int part = 0; part < 2; part++)
		for (int i = 0; i < 2; i++)
			say(i ? "native, thread 2" : "native, thread 1", parts[part],
			    (double[]){ numbers[i].median[0][part], numbers[i].mean[0][part] },
			    (double[]){ numbers[i].median[1][part], numbers[i].mean[1][part] });
}

/* Levels that come and go as modules call modules do, and fifty places in each of fifty functions. */
static const char program[] =
	"import ctypes, sys, tempfile, shutil, threading\n"
	"lib = ctypes.CDLL(sys.argv[1])\n"
	"where = tempfile.mkdtemp(prefix='gpumem-bench-')\n"
	"assert lib.pyframes_start(where.encode(), 1, 1, 64) == 0\n"
	"op = lib.stacks_load_op\n"
	"source = 'def helper(a): op()\\ndef forward(a, b=1):\\n x = a\\n helper(x)\\n'\n"
	"source += 'def inner(*a, **k): forward(*a, **k)\\ndef call(*a, **k): inner(*a, **k)\\n'\n"
	"for f in range(50):\n"
	"    source += 'def layer%d(a):\\n' % f + ' call(a)\\n' * 51\n"
	"for l in range(4):\n"
	"    source += 'def block%d(a, layers, b=1):\\n for f in layers: f(a)\\n' % l\n"
	"    source += 'def outer%d(*a, **k): return block%d(*a, **k)\\n' % (l, l)\n"
	"space = {'op': op}\n"
	"exec(compile(source, 'net.py', 'exec'), space)\n"
	"groups = [[space['layer%d' % f] for f in range(g, 50, 4)] for g in range(4)]\n"
	"def net():\n"
	"    for g in range(4): space['outer%d' % g](1, groups[g])\n"
	"def deep(n, run):\n"
	"    if n: deep(n - 1, run)\n"
	"    else: run()\n"
	"class numbers: pass\n"
	"def measure(name, run, parts, shallow):\n"
	"    median, mean = ctypes.c_double(), ctypes.c_double()\n"
	"    table = {}\n"
	"    for cold in 0, 1:\n"
	"        lib.stacks_load_begin(cold, shallow)\n"
	"        for part in parts:\n"
	"            lib.stacks_load_what(part)\n"
	"            for i in range(6):\n"
	"                if i == 2: lib.stacks_load_what(part)\n"
	"                lib.stacks_load_restart(); run()\n"
	"            lib.stacks_load_result(ctypes.byref(median), ctypes.byref(mean))\n"
	"            table[cold, part] = median.value, mean.value\n"
	"    for part in parts:\n"
	"        print('%-28s %-12s %10.0f %10.0f %10.0f %10.0f' % ((name,\n"
	"              ('capture', 'native walk', 'Python walk')[part]) + table[0, part] +\n"
	"              table[1, part]), flush=True)\n"
	"def first(): deep(8, net)\n"
	"version = sys.version.split()[0]\n"
	"measure(version + ', Python code', first, (0, 1, 2), 1)\n"
	"shutil.rmtree(where, ignore_errors=True)\n";

static void run_python(const char *python, const char *library)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		execlp(python, python, "-c", program, library, (char *)NULL);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
		printf("%s: could not be measured\n", python);
}

static int away(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

int main(int argc, char **argv)
{
	char self[PATH_MAX], library[PATH_MAX + 64], where[] = "/tmp/gpumem-bench-XXXXXX";
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	void *handle;

	if (n < 0 || !mkdtemp(where))
		return 1;
	self[n] = '\0';
	snprintf(library, sizeof(library), "%s/stacks_load.so", dirname(self));
	handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		printf("%s\n", dlerror());
		return 1;
	}
	*(void **)&start = dlsym(handle, "pyframes_start");
	*(void **)&begin = dlsym(handle, "stacks_load_begin");
	*(void **)&what = dlsym(handle, "stacks_load_what");
	*(void **)&op = dlsym(handle, "stacks_load_op");
	*(void **)&result = dlsym(handle, "stacks_load_result");
	if (start(where, 1, 1, 64))
		return 1;
	nftw(where, away, 8, FTW_DEPTH | FTW_PHYS);	/* its journal is mapped */
	printf("%-41s %21s %21s\n%-41s %10s %10s %10s %10s\n", "ns", "warm", "cold", "", "median",
	       "mean", "median", "mean");
	run_native();
	for (int i = 1; i < argc; i++)
		run_python(argv[i], library);
	if (argc < 2)
		run_python("python3", library);
	return 0;
}
