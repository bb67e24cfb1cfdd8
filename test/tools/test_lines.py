"""Source lines and inlined functions, by themselves, in every verb that shows a stack: the same everywhere, and --no-lines."""
import glob
import html
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from screen import Screen  # noqa: E402
from tap import B, BUSY, FAKE, GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem, journals_begun, killed_journal, wait_for  # noqa: E402

# A cache whose look-up is inlined into the thread that serves: the look-up keeps the memory.
SOURCE = r"""
#include <cstdio>
#include <unistd.h>
#define APART __attribute__((noipa))
#define INLINED static inline __attribute__((always_inline))
extern "C" {
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int cuMemFree_v2(unsigned long long);
}
static unsigned long long cache[100];
INLINED unsigned long long lookup(int key)
{
	if (!cache[key])
		cuMemAlloc_v2(&cache[key], 3 << 20);	/* mark: lookup */
	return cache[key];
}
APART void serve(int i)
{
	unsigned long long scratch;
	lookup(i);	/* mark: serve */
	cuMemAlloc_v2(&scratch, 1 << 20);	/* mark: scratch */
	cuMemFree_v2(scratch);
}
int main(int argc, char **argv)
{
	void *context;
	int device;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return 1;
	for (int i = 0; i < 20; i++)
		serve(i);
	if (argc > 1) {
		puts("waiting");
		fflush(stdout);
		pause();
	}
	return 0;
}
"""
MARKS = {re.search(r"mark: ([\w-]+)", line).group(1): n for n, line in enumerate(SOURCE.split("\n"), 1) if "mark:" in line}
# The same of a class, with a name of C++ that no terminal has room for.
LONG = re.sub(r"APART void serve.int i.", "struct Cache { APART void get(const std::map<std::string, std::vector<float>> &, unsigned long i); } a;\n"
              "void Cache::get(const std::map<std::string, std::vector<float>> &, unsigned long i)", SOURCE.replace("lookup(i)", "cuMemAlloc_v2(&cache[i], 3 << 20)"))
LONG = "#include <map>\n#include <string>\n#include <vector>\n" + LONG.replace("serve(i)", "a.get({}, i)")
LONG_AT = next(n for n, line in enumerate(LONG.split("\n"), 1) if "mark: serve" in line)
LOOKUP, SERVE = r"lookup", r"serve(int)"


def build(room, name, *flags, code=SOURCE):
    source, program = os.path.join(room.path, "grow.cc"), os.path.join(room.path, name)
    with open(source, "w", encoding="utf-8") as out:
        out.write(code)
    made = subprocess.run(["g++", "-O2", *flags, "-o", program, source, "-L" + FAKE, "-lcuda"], capture_output=True, text=True, check=False)
    return program if not made.returncode else sys.exit("cannot build: " + made.stderr)


def recorded(room, program):
    done = room.run([program], snapshot_on="exit", output=program + ".json", allocator="native")
    if done.returncode or not os.path.exists(program + ".json"):
        sys.exit("no snapshot: %s" % done)
    return program + ".json"


def sites(*words):
    """{call site: bytes} of merge, one of the verbs that have call sites as JSON."""
    rows = json.loads(gpumem("merge", "--json", "--weigh", "live", *words).stdout)["rows"]
    return {row["name"]: row["bytes"] for row in rows}


with Room() as room:
    program = build(room, "grow", "-g")
    path = recorded(room, program)
    asked = "lookup (grow.cc:%d)" % MARKS["lookup"]
    written = os.path.join(room.path, "written")

    # ---- every verb ---------------------------------------------------------------------------------------------------
    run = gpumem("summary", path)
    check("summary blames the function that was inlined, at its line", re.search(r"^ +60\.00 MiB .*  %s$" % re.escape(asked), run.stdout, re.M) and
          not run.stderr, run)
    check("merge, too", sites(path) == {asked: [60 << 20]}, sites(path))
    whole = re.compile(r"lookup \(\S*grow\.cc:%d\)\n +serve\(int\) \(\S*grow\.cc:%d\)\n +main \(\S*grow\.cc:\d+\)\n" % (MARKS["lookup"], MARKS["serve"]))
    for words in (("leaks", path), ("events", "--stacks", path), ("summary", "--by", "stack", path), ("diff", "--by", "stack", EMPTY := "-", path)):
        empty = json.dumps(dict(json.load(open(path, encoding="utf-8")), segments=[], device_traces=[])) if EMPTY in words else None
        run = gpumem(*words, stdin=empty)
        check("%s: each frame with its line, the inlined one among them" % " ".join(w for w in words if w != path), run.returncode == 0 and
              whole.search(run.stdout), run)
    for words in (("leaks", "--json"), ("events", "--stacks", "--jsonl"), ("diff", "--by", "stack", "--json", path)):
        run = gpumem(*words, path if words[0] != "diff" else "-", stdin=json.dumps(dict(json.load(open(path, encoding="utf-8")), segments=[], device_traces=[])))
        check("%s: as JSON" % words[0], '"lookup"' in run.stdout and re.search(r'"line": ?%d\b' % MARKS["lookup"], run.stdout), run.stdout[:500])
    for words in (("flame", "--format", "folded", "--weigh", "live"), ("flame", "--weigh", "live"), ("convert", "--to", "folded"), ("convert", "--to", "speedscope"),
                  ("convert", "--to", "csv"), ("convert", "--to", "pytorch-json"), ("convert", "--to", "chrome")):
        run = gpumem(*words, "-o", written, path)
        with open(written, encoding="utf-8") as text:
            said = html.unescape(text.read())
        check("%s has it" % " ".join(words), run.returncode == 0 and "lookup" in said and "serve(int)" in said, (run, said[:300]))
    run = gpumem("check", "--no-leaks", path)
    check("check names who leaked", run.returncode == 1 and whole.search(run.stdout), run)

    with subprocess.Popen([program, "wait"], stdout=subprocess.PIPE, text=True, env=room.env(allocator="native", snapshot_on="none")) as living:
        said = living.stdout.readline()
        pid = str(living.pid)

        def told_by(*words):
            return json.loads(gpumem("top", "--once", "--json", *words, pid).stdout)["processes"][0]["sites"]

        wait_for(lambda: "+0x" not in told_by("--no-lines")[0]["name"])      # the library's thread finds names in its own time
        told = [told_by(), told_by("--no-lines")]
        text = gpumem("top", "--once", pid)
        if os.geteuid() == 0:       # the journal names the files that would be opened: not believed of another user
            for journal in journals_begun(room, living.pid):
                os.chown(journal, 65534, -1)
            told.append(told_by())
        living.kill()
    check("top has it", said == "waiting\n" and [site["name"] for site in told[0]] == [asked] and told[0][0]["stack"][:2] ==
          ["lookup (grow.cc:%d)" % MARKS["lookup"], "serve(int) (grow.cc:%d)" % MARKS["serve"]], told)
    check("top, as text", asked in text.stdout and not text.stderr, text)
    check("top --no-lines: what was recorded", [site["name"] for site in told[1]] == ["serve(int) (grow)"], told[1])
    if os.geteuid() == 0:
        check("top: no lines for a process of another user", told[2] == told[1], told[2])
    else:
        check("top: no lines for a process of another user # SKIP a file of another user needs root", True)

    # ---- suppressions, and a snapshot that has names already ----------------------------------------------------------
    known, named = os.path.join(room.path, "known"), os.path.join(room.path, "named.json")
    gpumem("symbolize", "-o", named, path)
    for pattern in ("leak:^lookup$", "leak:grow.cc", "leak:_Z5servei", "leak:lookup"):
        with open(known, "w", encoding="utf-8") as out:
            out.write(pattern + "\n")
        left = [json.loads(gpumem("leaks", "--json", "-s", known, one).stdout)["suppressed_blocks"] for one in (path, named)]
        check("%s matches, with and without names" % pattern, left == [20, 20], left)
    # The file that has the lines is elsewhere from here on.
    os.rename(program, program + ".away")
    for one, other in ((path, named), (named, path)):
        for by in ("site", "stack"):
            run = gpumem("diff", "--by", by, "--json", one, other)
            check("diff --by %s, %s: nothing grew" % (by, "raw named" if one == path else "named raw"), run.stdout.strip() == "[]", run)
    check("without the file the recorded name", list(sites(path)) == ["serve(int) (grow)"], sites(path))
    os.rename(program + ".away", program)

    # ---- --no-lines, and what is missing ------------------------------------------------------------------------------
    for words in (("summary",), ("leaks",), ("merge",), ("events", "--stacks"), ("flame", "--format", "folded"), ("convert", "--to", "folded")):
        run = gpumem(*words, "--no-lines", path)
        check("%s --no-lines: what was recorded" % words[0], run.returncode == 0 and "lookup" not in run.stdout and "serve" in run.stdout, run)
    bare = recorded(room, build(room, "bare"))
    run = gpumem("summary", bare)
    check("a program without debug information: said once, with what to do", run.returncode == 0 and
          re.fullmatch(r"gpumem summary: no source lines of bare: it has no debug information \(compile with -g, .*\)\n", run.stderr), run)
    run = gpumem("merge", bare, bare, bare)
    check("of several snapshots, too", run.stderr.count("\n") == 1, run)
    check("and not with --no-lines", not gpumem("summary", "--no-lines", bare).stderr)

    # ---- a call site in 80 columns: what is left out is what tells least ------------------------------------------------
    def seen(*words, columns=80, **environment):
        """The lines that a terminal of so many columns shows."""
        with Screen([GPUMEM, *words], columns=columns, **environment) as screen:
            screen.ended(60 * BUSY)
            return [line.split("\r")[-1] for line in re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", screen.raw.decode(errors="replace")).split("\r\n")]

    program = build(room, "long", "-g", code=LONG)
    path, before = recorded(room, program), os.path.join(room.path, "before.json")
    with open(path, encoding="utf-8") as text, open(before, "w", encoding="utf-8") as out:
        json.dump(dict(json.load(text), segments=[], device_traces=[]), out)
    short, whole = "Cache::get(\u2026) (grow.cc:%d)" % LONG_AT, re.compile(r"  Cache::get\(std::map<std::.{100,} \(grow\.cc:%d\)$" % LONG_AT, re.M)
    for words in (("summary", path), ("diff", before, path), ("merge", path, path), ("merge", path, path, path, path, path, path), ("summary", "--full", path)):
        lines = seen(*words)
        check("%s %d: function, file and line within 80 columns" % (words[0], len(words)), any(line.endswith(short) for line in lines) and
              (words[1] == "--full" or all(len(line) <= 80 for line in lines)), "\n".join(lines))
        check("%s %d: in a file the whole name" % (words[0], len(words)), words == ("summary", path) or whole.search(gpumem(*words).stdout), words)
    room.run([os.path.join(B, "test/apps/demo_app.static")], snapshot_on="exit,oom")
    failed = glob.glob(room.out + "/*oom-1.json")[0]
    for words in ([verb, name] for name in (path, failed, os.path.abspath("test/data/gpumem-snapshot.json"))
                  for verb in ("summary --full", "summary --full --by stack", "events --stacks", "replay --search", "leaks --all")):
        words = [*words[0].split(), words[1]]
        lines = seen(*words)
        check("%s: a terminal's lines have at most its 80 columns" % " ".join(words[:-1] + [os.path.basename(words[-1])]), len(lines) > 3 and
              not any(len(line) > 80 for line in lines), [line for line in lines if len(line) > 80][:5])
    killed_journal(room)
    lines = seen("recover", GPUMEM_JOURNAL=room.journals)
    check("recover: its hint, too", all(len(line) <= 80 for line in lines if ".journal" not in line) and "in place of the journal" in " ".join(map(str.strip, lines)), lines)
    listed = seen("options"), gpumem("options").stdout.splitlines()
    check("options: a terminal's lines have at most its 80 columns", len(listed[0]) > 100 and all(len(line) <= 80 for line in listed[0]))
    check("options: a line each in a file, and as much", max(map(len, listed[1])) > 150 and
          " ".join(" ".join(listed[0]).split()) == " ".join(" ".join(listed[1]).split()), listed[0])
    rows = [" ".join(lines[1:]).split() for lines in (seen("events", failed), gpumem("events", failed).stdout.splitlines())]
    check("events: nothing is left out", rows[0] == rows[1] and len(rows[0]) > 200, rows[0])
    with subprocess.Popen([program, "wait"], stdout=subprocess.PIPE, text=True, env=room.env(allocator="native", snapshot_on="none")) as living:
        living.stdout.readline()
        for columns, wide in ((80, False), (140, True)):
            lines = seen("top", "--once", str(living.pid), columns=columns)
            check("top --once: within %d columns" % columns, len(lines) > 6 and all(len(line) <= columns for line in lines) and
                  ("limbo" in "".join(lines)) == wide and short in "".join(lines), lines)
        with Screen([GPUMEM, "top", str(living.pid)], columns=80) as screen:
            check("top: function, file and line within 80 columns", screen.until(short), screen.pictures()[-1:])
            screen.press("q")
            screen.ended()
        living.kill()
finish()
