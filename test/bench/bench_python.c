/*
 * bench_python.c - what Python frames cost: for the python3 on the PATH (or those named), a capture
 * at depths 10, 40 and 120 with native frames alone and with Python's among them, the walk of the
 * Python frames by itself, and Python's own way, the module traceback.
 *
 * Medians of several rounds, interleaved. Known stacks; "in use" is one with native and Python's
 * frames while the program uses its caches (256 KiB written between two, and the clock's reading in
 * it); the last column is one never seen, names and lines of its frames read anew.
 *
 *	bench_python [python ...]
 */
#define _GNU_SOURCE
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char program[] =
	"import ctypes, shutil, statistics, sys, tempfile, time, traceback\n"
	"lib = ctypes.CDLL(sys.argv[1])\n"
	"lib.pyframes_time.restype = lib.pyframes_time_walk.restype = ctypes.c_double\n"
	"lib.pyframes_time_new.restype = lib.pyframes_time_cold.restype = ctypes.c_double\n"
	"where = tempfile.mkdtemp(prefix='gpumem-bench-')\n"
	"assert lib.pyframes_start(where.encode(), 1, 1, 256) == 0\n"
	"count = ctypes.c_int()\n"
	"def times(rounds, *what):\n"
	"    rows = [[f() for f in what] for _ in range(rounds)]\n"
	"    return [statistics.median(r[i] for r in rows) for i in range(len(what))]\n"
	"def capture(python):\n"
	"    lib.pyframes_configure(1, python, 256)\n"
	"    return lib.pyframes_time(4000)\n"
	"def own():\n"
	"    begin = time.perf_counter()\n"
	"    for _ in range(20):\n"
	"        traceback.StackSummary.extract(traceback.walk_stack(None), lookup_lines=False)\n"
	"    return (time.perf_counter() - begin) / 20 * 1e9\n"
	"def at(depth):\n"
	"    if depth: return at(depth - 1)\n"
	"    for _ in range(40): lib.pyframes_capture()\n"
	"    native, both, cold, walk, python, new = times(15, lambda: capture(0), lambda: capture(1),\n"
	"        lambda: lib.pyframes_time_cold(200, 256 << 10),\n"
	"        lambda: lib.pyframes_time_walk(4000, 256, ctypes.byref(count)), own,\n"
	"        lambda: lib.pyframes_time_new(50))\n"
	"    print('%-8s %6d %10.0f %10.0f %10.0f %10.0f %10.2f %12.0f %10.0f' %\n"
	"        (sys.version.split()[0], count.value, native, both, cold, walk, walk / count.value,\n"
	"         python, new))\n"
	"for depth in (10, 40, 120): at(depth - 6)\n"
	"shutil.rmtree(where, ignore_errors=True)\n";

static void run(const char *python, const char *library)
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

int main(int argc, char **argv)
{
	char self[PATH_MAX], library[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return 1;
	self[n] = '\0';
	snprintf(library, sizeof(library), "%s/../unit/python/pyframes.so", dirname(self));
	printf("%-8s %6s %10s %10s %10s %10s %10s %12s %10s\n", "", "Python", "native", "with",
	       "in use", "Python", "ns per", "traceback's", "a new");
	printf("%-8s %6s %10s %10s %10s %10s %10s %12s %10s\n", "CPython", "frames", "ns", "Python ns",
	       "ns", "walk ns", "frame", "walk ns", "stack ns");
	for (int i = 1; i < argc; i++)
		run(argv[i], library);
	if (argc < 2)
		run("python3", library);
	return 0;
}
