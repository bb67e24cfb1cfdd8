#!/usr/bin/env python3
"""Names of native frames, end to end: what a process knows of itself at its exit, and what gpumem symbolize adds."""
import html
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import FAKE, Room, check, finish, seed, tell  # noqa: E402
from verbs import APP, Program, gpumem, journals_begun, killed_journal, load, stack_of, wait_for  # noqa: E402

# Lines that a stack must show carry a mark.
SOURCE = r"""
#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noipa))	/* gcc: no clone under another name either */
#endif
extern "C" {
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
void sleep_a_while(void);
APART int rust_new(unsigned long size) __asm__("_RNvNtC4demo5inner5reser");
APART int rust_old(unsigned long size) __asm__("_ZN4demo5inner7reserve17h0123456789abcdefE");
}
namespace shop {
template <typename T> struct Box {
	static APART int fill(T count)
	{
		unsigned long long at;
		int r = cuMemAlloc_v2(&at, count * 1000003ul);	/* mark: fill */
		return r + 1;
	}
};
inline __attribute__((always_inline)) int inner(unsigned long size)
{
	unsigned long long at;
	return cuMemAlloc_v2(&at, size) + 1;	/* mark: inner */
}
inline __attribute__((always_inline)) int middle(unsigned long size)
{
	return inner(size + 1) * 2;	/* mark: middle */
}
APART int outer(unsigned long size)
{
	int r = middle(size);	/* mark: outer */
	return r + 3;
}
}
int rust_new(unsigned long size) { return shop::outer(size) + 1; }	/* mark: rust_new */
int rust_old(unsigned long size)
{
	auto nested = [](unsigned long n) APART { return rust_new(n) + 1; };	/* mark: nested */
	return nested(size) + 1;
}
int main(int argc, char **argv)
{
	void *context;
	int device;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return 1;
	shop::Box<int>::fill(5);	/* mark: main-fill */
	rust_old(999999);
	return 0;
}
"""
MARKS = {re.search(r"mark: ([\w-]+)", line).group(1): n for n, line in enumerate(SOURCE.split("\n"), 1) if "mark:" in line}


def build(room, name="app", text=SOURCE, flags=("-O2", "-g"), compiler="g++"):
    source, program = os.path.join(room.path, "shop.cc"), os.path.join(room.path, name)
    with open(source, "w", encoding="utf-8") as out:
        out.write(text)
    made = subprocess.run([compiler, *flags, "-o", program, source, "-L" + FAKE, "-lcuda"], capture_output=True, text=True, check=False)
    return program if not made.returncode else sys.exit("cannot build: " + made.stderr)


def snapshot_of(room, program):
    """The exit snapshot of a run of @program: parsed, and its path."""
    for old in room.files():
        os.remove(os.path.join(room.out, old))
    done = room.run([program])
    if done.returncode or not room.files():
        sys.exit("no snapshot of %s: %s" % (program, tell(done)))
    path = os.path.join(room.out, room.files()[0])
    return load(path), path


def symbolized(room, path, *words):
    out = os.path.join(room.path, "named.json")
    if os.path.exists(out):
        os.remove(out)
    done = gpumem("symbolize", path, "-o", out, *words)
    return done, load(out) if os.path.exists(out) else None


def short(frame):
    return frame["name"], os.path.basename(frame["filename"]), frame["line"], frame.get("inlined", False)


FILL, INLINED = 5 * 1000003, 1000000
WANTED_FILL = [("shop::Box<int>::fill(int)", "shop.cc", MARKS["fill"], False), ("main", "shop.cc", MARKS["main-fill"], False)]
WANTED_INLINED = [("shop::inner(unsigned long)", "shop.cc", MARKS["inner"], True),
                  ("shop::middle(unsigned long)", "shop.cc", MARKS["middle"], True),
                  ("shop::outer(unsigned long)", "shop.cc", MARKS["outer"], False),
                  ("demo::inner::reser", "shop.cc", MARKS["rust_new"], False)]


def all_lines(snapshot):
    return ([short(f) for f in stack_of(snapshot, FILL)][:2] == WANTED_FILL
            and [short(f) for f in stack_of(snapshot, INLINED)][:4] == WANTED_INLINED)


def shown(snapshot):
    return [short(f) for f in stack_of(snapshot, FILL)[:3] + stack_of(snapshot, INLINED)[:8]] if snapshot else None


def references(snapshot):
    """Does every stack refer to frames that there are?"""
    count = len(snapshot["frames"])
    return all(0 <= f < count for stack in snapshot["stacks"] for f in stack)


def in_process(room):
    program = build(room)
    snap, path = snapshot_of(room, program)
    names = [f["name"] for f in stack_of(snap, FILL)]
    check("names its functions, raw", names[:2] == ["_ZN4shop3BoxIiE4fillEi", "main"] and "_start" in names, names)
    names = [f["name"] for f in stack_of(snap, INLINED)]
    check("of Rust as well", "_RNvNtC4demo5inner5reser" in names and "_ZN4demo5inner7reserve17h0123456789abcdefE" in names, names)
    written = os.path.join(room.path, "written")
    for words in (("summary",), ("summary", "--json"), ("leaks",), ("leaks", "--json"), ("diff", path), ("flame", "-o", written, "-w", "peak"), ("events", "--stacks"),
                  *(("convert", "--to", to, "-o", written) for to in ("folded", "pickle", "pytorch-json", "speedscope", "csv"))):
        run = gpumem(*words, path)
        with open(written, "rb") if "-o" in words else io.BytesIO(run.stdout.encode()) as said:
            text = html.unescape(said.read().decode(errors="replace"))
        check("%s has C++ names as the source has them" % " ".join(w for w in words if "/" not in w), run.returncode == 0 and
              ("shop::Box<int>::fill(int)" in text or words[0] == "diff") and "_ZN4shop" not in text.split('"modules"')[0], (run.stderr, text[:500]))
    known = os.path.join(room.path, "known")
    for pattern in ("shop::Box<int>::fill", "_ZN4shop3BoxIiE4fill"):
        with open(known, "w", encoding="utf-8") as out:
            out.write("leak:%s\n" % pattern)
        check("a suppression by %s" % pattern, '"suppressed_blocks": 1' in gpumem("leaks", "--json", "--suppressions", known, path).stdout)
    check("lines are not its business", all(f["line"] == 0 for f in snap["frames"] if not f["python"]))
    done, named = symbolized(room, path)
    check("gpumem symbolize", done.returncode == 0, done.stderr)
    check("functions, lines, inlined functions", all_lines(named), shown(named))
    rest = [short(f) for f in stack_of(named, INLINED)][4:6]
    check("a function within a function; Rust's older names", [f[0].split("(")[0] for f in rest] ==
          ["rust_old::{lambda", "demo::inner::reserve"] and rest[0][2] == MARKS["nested"], rest)
    check("stacks refer to frames", references(named))
    same = {k: v for k, v in named.items() if k not in ("frames", "stacks")}
    check("the rest is as it was", same == {k: v for k, v in snap.items() if k not in ("frames", "stacks")})
    check("mode 0600", os.stat(os.path.join(room.path, "named.json")).st_mode & 0o777 == 0o600)
    again = gpumem("symbolize", os.path.join(room.path, "named.json"))
    check("twice is once; to standard output", json.loads(again.stdout) == named, again.stderr)
    done, flat = symbolized(room, path, "--no-inlines")
    want = [WANTED_FILL[0], WANTED_INLINED[2]]
    have = [short(stack_of(flat, FILL)[0]), short(stack_of(flat, INLINED)[0])]
    check("--no-inlines", have == want and flat["stacks"] == snap["stacks"], have)


def compilers(room):
    for compiler, flags in (("g++", ["-O2", "-g", "-gdwarf-4"]), ("g++", ["-O2", "-g", "-gdwarf-5", "-gz"]), ("clang++", ["-O2", "-g"]),
                            ("clang++", ["-O2", "-g", "-gdwarf-4"])):
        program = build(room, flags=flags + ["-Wl,--build-id"], compiler=compiler)
        _, path = snapshot_of(room, program)
        _, named = symbolized(room, path)
        check("%s %s" % (compiler, " ".join(flags)), named and all_lines(named), shown(named))


def run_tool(*words):
    subprocess.run(words, check=True, capture_output=True)


def build_id(program):
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)


def elsewhere(room):
    """Stripped, the debug information in another file; another build in its place; on another machine."""
    program = build(room)
    whole = os.path.join(room.path, "whole")
    shutil.copy(program, whole)
    debug = os.path.join(room.path, "debug")
    identity = build_id(program)
    os.makedirs(os.path.join(debug, ".build-id", identity[:2]))
    run_tool("objcopy", "--only-keep-debug", whole, os.path.join(debug, ".build-id", identity[:2], identity[2:] + ".debug"))
    run_tool("strip", "--strip-all", program)
    snap, path = snapshot_of(room, program)
    check("a stripped program does not know its names", not any(f["name"].startswith("_ZN4shop") for f in snap["frames"]))
    done, named = symbolized(room, path)
    check("nor does gpumem: no debug information", done.returncode == 0 and "no debug information" in done.stderr, done.stderr)
    _, named = symbolized(room, path, "--debug-dir", debug)
    check("--debug-dir with .build-id/xx/yyyy.debug", all_lines(named), shown(named))
    by_name = os.path.join(room.path, "by-name")
    os.mkdir(by_name)
    shutil.copy(whole, os.path.join(by_name, "app.debug"))
    _, named = symbolized(room, path, "--debug-dir", os.path.join(room.path, "none"), "--debug-dir", by_name)
    check("--debug-dir with NAME.debug", all_lines(named), shown(named))

    other = build(room, text=SOURCE.replace("1000003ul", "1000033ul").replace("namespace shop", "namespace mall").replace("shop::", "mall::"))
    check("another build in its place", other == program and build_id(program) != identity)
    done, named = symbolized(room, path)
    frames = [f for f in named["frames"] if not f["python"]]
    check("is refused by its build id", "no file with its build id" in done.stderr and identity in done.stderr, done.stderr)
    check("nothing of it is shown", not any("mall" in f["name"] or f["filename"].endswith("shop.cc") for f in frames))
    os.remove(program)
    done, named = symbolized(room, path)
    check("none in its place", "no file with its build id" in done.stderr, done.stderr)
    root = os.path.join(room.path, "root")
    os.makedirs(root + os.path.dirname(program))
    shutil.copy(whole, root + program)
    _, named = symbolized(room, path, "--sysroot", root)
    check("--sysroot", all_lines(named), shown(named))


def no_build_id(room):
    program = build(room, flags=("-O2", "-g", "-Wl,--build-id=none"))
    snap, path = snapshot_of(room, program)
    check("without a build id the process knows", "_ZN4shop3BoxIiE4fillEi" in [f["name"] for f in stack_of(snap, FILL)])
    done, named = symbolized(room, path)
    check("the command demangles, and gives no line", "no build id" in done.stderr and
          short(stack_of(named, FILL)[0]) == ("shop::Box<int>::fill(int)", "", 0, False), done.stderr)


def recovered(room):
    """A killed process leaves frames that nobody has named: the command does."""
    _, journal = killed_journal(room, 0.2, "--threads", "4")
    done, named = symbolized(room, journal)
    names = {f["name"] for f in named["frames"]} if named else set()
    check("a journal is taken as it is", done.returncode == 0 and "cudaMalloc" in names, (done.stderr, sorted(names)[:20]))


def named_frames(path):
    """The names that the journal itself has for its frames: this verb resolves none."""
    return {frame["name"] for frame in json.loads(gpumem("convert", "--to", "gpumem", path).stdout)["frames"]}


def in_background(room):
    """A program that lives on has its names in the journal without anybody asking for a snapshot."""
    with Program(room, APP, "--loop", "--max-seconds", "60", "--threads", "2") as program:
        check("the program runs", wait_for(lambda: journals_begun(room)) and program.child.poll() is None)
        named = wait_for(lambda: any("loop_body" in name for path in room.journal_files() for name in named_frames(path)))
        check("names come by themselves", named and program.child.poll() is None, (room.journal_files(), program.child.poll()))
        program.kill()
    gpumem("recover", "-o", os.path.join(room.out, "r.json"), *room.journal_files())
    names = {f["name"] for f in load(os.path.join(room.out, "r.json"))["frames"]}
    check("and outlive it", any("loop_body" in name for name in names), sorted(names))


def hostile(room):
    program = build(room)
    snap, _ = snapshot_of(room, program)
    # By its own build id the C library is found wherever the path points: only the program counts.
    snap["modules"] = [m if m["build_id"] == build_id(program) else snap["modules"][0] for m in snap["modules"]]
    fifo, link, huge = (os.path.join(room.path, n) for n in ("fifo", "link", "huge"))
    os.mkfifo(fifo)
    os.symlink(fifo, link)
    with open(huge, "wb") as out:
        out.truncate(1 << 42)
    long = "/" + "x/" * 5000
    paths = ["/dev/zero", "/dev/tty", "/dev/ptmx", fifo, link, huge, room.path, "/proc/self/mem", "/proc/kmsg", "", long, "relative",
             "/proc/self/fd/0", room.path + "/\x1b[31m", "../" * 40 + "dev/zero"]
    path = os.path.join(room.path, "hostile.json")
    for frame in snap["frames"]:
        frame["name"] = ""
    for bad in paths:
        for module in snap["modules"][1:]:
            module["path"] = bad
        with open(path, "w", encoding="utf-8") as out:
            json.dump(snap, out)
        done, named = symbolized(room, path, "--debug-dir", room.path)
        check("a path %.40r" % bad, done.returncode == 0 and named and "\x1b" not in done.stderr and
              not any(f["name"] for f in named["frames"]), done.stderr)
    odd = [("modules", [None, 3, "x"]), ("modules", {}), ("frames", [[], {}, {"module": 1, "offset": 5}, {"module": -1, "offset": -5}, 7]),
           ("frames", "none"), ("stacks", [5, None, [1, "x", 99999999, -1]]), ("stacks", {}), ("frames", [])]
    for key, value in odd:
        with open(path, "w", encoding="utf-8") as out:
            json.dump(dict(snap, **{key: value}), out)
        done = gpumem("symbolize", path)
        check("odd %s: %.50s" % (key, value), done.returncode in (0, 3), (done.returncode, done.stderr))
    ids = ["", "zz", "0", "00" * 33, "ABCDEF00", "\u00e4" * 20, 7, None]
    for identity in ids:
        for module in snap["modules"][1:]:
            module["path"], module["build_id"] = program, identity
        with open(path, "w", encoding="utf-8") as out:
            json.dump(snap, out)
        done, named = symbolized(room, path)
        check("a build id %.12r" % (identity,), done.returncode == 0 and not any(f["name"] for f in named["frames"]), done.stderr)
    # A name that stands for gigabytes, one that nests thousands deep, one that is no text.
    doubled = "_Z1fI" + "St4pairI" * 3 + "ii" + "E" * 3 + "".join("St4pairIS%s_S%s_E" % (c, c) for c in
                                                                   ["", *"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"][3:]) + "Evv"
    for name in (doubled, "_Z1f" + "P" * 8000 + "i", "_Z1f" + "P" * 16000 + "i", "_ZN" + "1aI" * 2700 + "E", "_RNv" + "NtC1a1b" * 900, "_R" + "B_" * 3000):
        for frame in snap["frames"]:
            frame["name"] = name
        with open(path, "w", encoding="utf-8") as out:
            json.dump(snap, out)
        done, named = symbolized(room, path)
        check("a name %.20s... of %d" % (name, len(name)), done.returncode == 0 and max(len(f["name"]) for f in named["frames"]) <= 16384, done.stderr)


def damaged(room):
    """Debug information of any content, under the right build id."""
    program = build(room)
    _, path = snapshot_of(room, program)
    sections = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
    places = [(int(at, 16), int(size, 16)) for name, at, size in
              re.findall(r"\] (\.debug_\w+|\.symtab|\.strtab) +\w+ +\w+ (\w+) (\w+)", sections)]
    with open(program, "rb") as whole:
        good = whole.read()
    rng, bad, rounds = random.Random(seed()), [], int(os.environ.get("ROUNDS", "40"))
    for n in range(rounds):
        data = bytearray(good)
        for _ in range(rng.choice((1, 3, 10, 100))):
            at, size = rng.choice(places)
            data[at + rng.randrange(size)] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
        with open(program, "wb") as out:
            out.write(data)
        done, named = symbolized(room, path)
        if done.returncode or not named or not references(named):
            bad.append((n, done.returncode, done.stderr[-200:]))
    check("damaged debug information, %d files" % rounds, not bad, bad[:3])


def libdw(room):
    """libdw that is too old, and one that takes the worker down with it."""
    program = build(room)
    _, path = snapshot_of(room, program)
    with open("tools/symbols/dwarf.c", encoding="utf-8") as source:
        functions = re.findall(r"X\((\w+)\)", source.read())
    check("the functions of libdw", len(functions) > 15 and "dwarf_begin" in functions)
    for name, body, count in (("old", "", len(functions) - 1), ("deadly", "*(volatile int *)8 = 1;", len(functions))):
        where = os.path.join(room.path, name)
        os.mkdir(where)
        with open(where + "/dw.c", "w", encoding="utf-8") as out:
            out.write("".join("void *%s(void) { %s return 0; }\n" % (f, body) for f in functions[:count]))
        run_tool("gcc", "-w", "-shared", "-fPIC", "-Wl,-soname,libdw.so.1", "-o", where + "/libdw.so.1", where + "/dw.c")
        out = os.path.join(room.path, "named.json")
        done = gpumem("symbolize", path, "-o", out, env={"LD_LIBRARY_PATH": where})
        frame = short(stack_of(load(out), FILL)[0])
        check("a libdw that is %s: names all the same" % name, done.returncode == 0 and frame == ("shop::Box<int>::fill(int)", "", 0, False) and
              ("too old" if name == "old" else "could not be digested") in done.stderr, (frame, done.stderr))


WRAPPED = SOURCE[:SOURCE.index("namespace shop")] + r"""
APART unsigned long long alloc(unsigned long size)
{
	unsigned long long at = 0;
	return cuMemAlloc_v2(&at, size) ? 0 : at;	/* mark: alloc */
}
static APART void layers(void)
{
	alloc(3 << 20);	/* mark: layer-1 */
	alloc(2 << 20);	/* mark: layer-2 */
	__asm__ volatile("");	/* no tail call */
}
int main(int argc, char **argv)
{
	void *context;
	int device;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return 1;
	if (argc == 1)
		layers();
	alloc(1 << 20);	/* mark: head */
	alloc(5 << 20);	/* mark: tail */
	return alloc(1ul << 40) != 0;	/* mark: batch */
}
"""


def wrapped(room):
    """An allocation function of the program's own, which every stack begins with, tells nobody apart."""
    marks = {re.search(r"mark: ([\w-]+)", line).group(1): n for n, line in enumerate(WRAPPED.split("\n"), 1) if "mark:" in line}
    program = build(room, text=WRAPPED)
    _, path = snapshot_of(room, program)
    path = next(os.path.join(room.out, f) for f in room.files() if "oom-1" in f)
    rows = {r["site"]: (r["allocated_bytes"] >> 20, r["blocks"]) for r in json.loads(gpumem("summary", "--json", path).stdout)["by_site"]}
    check("blocks by the callers of the program's allocation function, line by line", rows == {
        "layers() (shop.cc:%d)" % marks["layer-1"]: (3, 1), "layers() (shop.cc:%d)" % marks["layer-2"]: (2, 1),
        "main (shop.cc:%d)" % marks["head"]: (1, 1), "main (shop.cc:%d)" % marks["tail"]: (5, 1)}, rows)
    text = gpumem("summary", "--full", path).stdout
    check("what could not be had: by who called it, with its stack", re.search(
        r"^why memory ran out\nmain \(shop\.cc:%d\) asked for 1\.00 TiB .*\n.*\n  alloc\(unsigned long\) \(.*shop\.cc:%d\)\n  main \(.*shop\.cc:%d\)\n" % (
            marks["batch"], marks["alloc"], marks["batch"]), text, re.M) and
          re.search(r"^  #1 .* by app, main \(shop\.cc:%d\): CUDA_ERROR_OUT_OF_MEMORY" % marks["batch"], text, re.M), text)
    found = json.loads(gpumem("summary", "--json", path).stdout)["explanation"]["stack"]
    check("likewise in JSON", [f["name"] for f in found][:2] == ["alloc(unsigned long)", "main"] and found[1]["line"] == marks["batch"], found)
    for old in room.files():
        os.remove(os.path.join(room.out, old))
    room.run([program, "flat"])
    path = next(os.path.join(room.out, f) for f in room.files() if "oom-1" in f)
    rows = [r["site"] for r in json.loads(gpumem("summary", "--json", path).stdout)["by_site"]]
    check("where all stacks have the same functions: by the place of the call", sorted(rows) == sorted(
        "main (shop.cc:%d)" % marks[m] for m in ("head", "tail")), rows)
    run_tool("strip", "--strip-debug", program)
    rows = [r["site"] for r in json.loads(gpumem("summary", "--json", path).stdout)["by_site"]]
    check("without debug information by function", rows == ["main (app)"], rows)
    os.remove(program)
    build(room, text=WRAPPED.replace("5 << 20", "6 << 20"))
    check("another build has no say", [r["site"] for r in json.loads(gpumem("summary", "--json", path).stdout)["by_site"]] == ["main (app)"])


def usage(room):
    check("no snapshot", gpumem("symbolize").returncode == 2)
    check("two snapshots", gpumem("symbolize", "a", "b").returncode == 2)
    check("an odd option", gpumem("symbolize", "--lines", "a").returncode == 2)
    check("a snapshot that is not there", gpumem("symbolize", os.path.join(room.path, "none")).returncode == 3)
    path = os.path.join(room.path, "small.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"format": "gpumem-snapshot", "version": 1}, out)
    check("a snapshot without frames", gpumem("symbolize", path).returncode == 0)
    done = gpumem("symbolize", path, "-o", os.path.join(room.path, "no", "where.json"))
    check("an output that cannot be written", done.returncode == 1 and "where.json" in done.stderr, done.stderr)
    done = gpumem("symbolize", path, "-o", path)
    check("onto itself", done.returncode == 0 and load(path)["version"] == 1, done.stderr)


for part in (in_process, compilers, elsewhere, no_build_id, recovered, in_background, hostile, damaged, libdw, wrapped, usage):
    with Room() as place:
        part(place)
finish()
