"""gpumem summary of a crash: it begins with the thread that died, the address and the block that it lies in, the stack with lines, and what
the thread did last. A program that was asked to end did not crash."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import FAKE, Room, check, finish  # noqa: E402
from verbs import gpumem, load  # noqa: E402

SOURCE = r"""
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define APART __attribute__((noipa))
extern "C" {
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int cuMemFree_v2(unsigned long long);
}
static unsigned long long at;
static inline __attribute__((always_inline)) void store(volatile int *to)
{
	*to = 5;	/* mark: store */
}
APART void decode(volatile int *to)
{
	store(to);	/* mark: decode */
}
APART int load_model()
{
	int r = cuMemAlloc_v2(&at, 3000000);	/* mark: load */
	return r + 1;
}
int main(int argc, char **argv)
{
	void *context;
	int device;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return 1;
	load_model();
	for (int i = 0; i < 20; i++) {
		unsigned long long other;
		cuMemAlloc_v2(&other, 1000 + i);
		cuMemFree_v2(other);
	}
	if (!strcmp(argv[1], "signal"))
		kill(getpid(), atoi(argv[2]));
	else
		decode((volatile int *)(strcmp(argv[1], "null") ? at + atol(argv[2]) : 8));	/* mark: main */
	pause();
	return 0;
}
"""
MARKS = {re.search(r"mark: ([\w-]+)", line).group(1): n for n, line in enumerate(SOURCE.split("\n"), 1) if "mark:" in line}


with Room() as room:
    program, source = os.path.join(room.path, "crash"), os.path.join(room.path, "crash.cc")
    with open(source, "w", encoding="utf-8") as out:
        out.write(SOURCE)
    made = subprocess.run(["g++", "-O2", "-g", "-o", program, source, "-L" + FAKE, "-lcuda"], capture_output=True, text=True, check=False)
    if made.returncode:
        sys.exit("cannot build: " + made.stderr)

    def crashed(*words):
        """The path of the snapshot of its end, and how it ended."""
        path = os.path.join(room.path, "-".join(words) + ".json")
        done = room.run([program, *words], snapshot_on="crash", output=path, allocator="native")
        return path, done.returncode

    def summary(path, *words):
        return gpumem("summary", *words, path).stdout

    path, status = crashed("null")
    thread = load(path)["failure"]["thread"]
    text = summary(path)
    check("the third line has signal, thread and address", status == -11 and
          text.splitlines()[2] == "died of SIGSEGV in thread %d, address 0x8" % thread, text)
    check("which is no GPU memory", text.splitlines()[3] == "  in no block of GPU memory, nor beside one", text)
    check("then the stack, with lines and the function that was inlined", re.search(
        r"^  store \(\S*crash\.cc:%d\)\n  decode\(int volatile\*\) \(\S*crash\.cc:%d\)\n  main \(\S*crash\.cc:%d\)\n" % (
            MARKS["store"], MARKS["decode"], MARKS["main"]), "\n".join(text.splitlines()[4:]) + "\n"), text)
    events = text.split("the last events of that thread\n")[1].split("\n\n")[0].splitlines()
    check("then the ten last events of the thread, the last one last", len(events) == 10 and all(re.match(
        r"  +-\d+\.\d{6} s (alloc|free_requested|free_completed|segment_alloc|segment_free) ", e) for e in events) and
          "1019 B" in events[-1] and [float(e.split()[0]) for e in events] == sorted(float(e.split()[0]) for e in events), events)
    check("all in 30 lines", len(text.splitlines()) <= 30, text)

    # Where the fake driver's memory can be written by the host, there is no fault.
    address = [b["address"] for s in load(path)["segments"] for b in s["blocks"] if b["requested_size"] == 3000000][0]
    snapshot = load(path)
    for name, offset, says in (("within a block", 100000, "  97.66 KiB into a block of 2.86 MiB that load_model() (crash.cc:%d) asked for" % MARKS["load"]),
                               ("at its beginning", 0, "  0 B into a block of 2.86 MiB that load_model() (crash.cc:%d) asked for" % MARKS["load"]),
                               ("behind it", 3000004, "  4 B behind the end of a block of 2.86 MiB that load_model() (crash.cc:%d) asked for" % MARKS["load"]),
                               ("before it", -8, "  8 B before the beginning of a block of 2.86 MiB that load_model() (crash.cc:%d) asked for" % MARKS["load"])):
        snapshot["failure"]["address"] = address + offset
        made = gpumem("summary", "-", stdin=json.dumps(snapshot))
        check("an address %s: which one, and who asked for it" % name, made.stdout.split("\n", 3)[3].replace("\n  ", " ").startswith(says) and
              all(len(line) <= 80 for line in made.stdout.splitlines()), made)

    for number, name in ((15, "SIGTERM"), (2, "SIGINT"), (1, "SIGHUP")):
        path, status = crashed("signal", str(number))
        text = summary(path)
        check("%s is no crash: who sent it, and no stack" % name, status == -number and re.fullmatch(
            r"ended by %s, sent by process \d+" % name, text.splitlines()[2]) and not text.splitlines()[3] and "died" not in text, text)
    # Ctrl-C: the kernel sends SIGINT, for no process.
    snapshot = load(crashed("signal", "2")[0])
    snapshot["failure"].update(code=128, sender_pid=None, sender_uid=None)
    for address in (None, 0):           # before, a snapshot had an address of 0 here
        text = gpumem("summary", "-", stdin=json.dumps(dict(snapshot, failure=dict(snapshot["failure"], address=address)))).stdout
        check("Ctrl-C is no crash either", text.splitlines()[2:4] == ["ended by SIGINT, sent by the terminal", ""], text)
    path, status = crashed("signal", "6")
    check("SIGABRT is one", summary(path).splitlines()[2].startswith("died of SIGABRT in thread "), summary(path))
finish()
