"""gpumem top: what it shows of living processes, as reports and on a terminal; that it disturbs nobody."""
import glob
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/python")
from host import HERE, PACKAGE  # noqa: E402
from screen import Screen  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, Program, gpumem, journals_begun, load, wait_for  # noqa: E402

MiB = 1 << 20


def reports(*words, **more):
    run = gpumem("top", "--json", *words, **more)
    return [json.loads(line) for line in run.stdout.splitlines()] if run.returncode == 0 else run


def states(pid):
    """The kernel's own word of what a process is doing: signals that wait, who traces it, stops."""
    with open("/proc/%d/status" % pid, encoding="utf-8") as status:
        fields = dict(line.split(":", 1) for line in status)
    return {k: fields[k].strip() for k in ("TracerPid", "SigPnd", "ShdPnd")}


with Room() as room, Program(room, APP, "--wait", "600") as waiting, Program(room, APP, "--loop", "--max-seconds", "600",
                                                                             "--threads", "2") as loop:
    check("two programs run", waiting.until("waiting") and wait_for(lambda: journals_begun(room, loop.pid)))
    before = states(waiting.pid), states(loop.pid)
    shot = os.path.join(room.path, "shot.json")
    gpumem("snapshot", "-o", shot, str(waiting.pid))
    snapshot = load(shot)

    # ---- reports -----------------------------------------------------------------------------------------------
    one = reports("--once", str(waiting.pid))[0]["processes"]
    check("--json of one process", len(one) == 1 and one[0]["pid"] == waiting.pid and one[0]["state"] == "running", one)
    stats = snapshot["devices"][0]["memory_stats"]
    device = next(d for d in one[0]["devices"] if d["device"] == 0)
    want = {"live_bytes": stats["requested_bytes.all.current"], "reserved_bytes": stats["reserved_bytes.all.current"],
            "peak_bytes": stats["requested_bytes.all.peak"], "blocks": stats["allocation.all.current"],
            "allocations": stats["allocation.all.allocated"], "pending_bytes": 0,
            "cached_bytes": stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"],
            "uuid": snapshot["devices"][0]["uuid"], "total_bytes": snapshot["devices"][0]["total_bytes"]}
    check("the same numbers as its snapshot", {k: device[k] for k in want} == want and device["live_bytes"] > 10 * MiB, (device, want))
    check("pinned memory as the host's", [d["live_bytes"] for d in one[0]["devices"] if d["device"] is None] == [MiB], one)
    modules = {os.path.basename(m["path"]): m["allocated_bytes"] for m in snapshot["devices"][0]["by_module"]}
    check("by module", {m["name"]: m["live_bytes"] for m in one[0]["modules"]} == modules, (one[0]["modules"], modules))
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated" and b["kind"] != "ipc"]
    sites = {s["name"]: s for s in one[0]["sites"]}
    check("by call site: all of it", sum(s["live_bytes"] for s in sites.values()) == sum(b["requested_size"] for b in blocks) and
          sum(s["blocks"] for s in sites.values()) == len(blocks), sites)
    name = next((n for n in sites if n.startswith("main (")), None)
    check("named, with the largest stack", name and any(f.startswith("main (") for f in sites[name]["stack"]) and
          sites[name]["stack"][0].startswith("cudaMalloc") and sites[name]["stacks"] > 3, sites)
    check("at rest nothing is allocated", device["allocations_per_s"] == 0 and all(s["growth_bytes"] == 0 for s in sites.values()))

    # How much it does in a while is the machine's business, not whether the numbers agree.
    two = reports("-n", "3", "-d", "0.5", str(loop.pid))
    rates = [r["processes"][0]["devices"][0]["allocations_per_s"] for r in two]
    check("-n 3: three reports, with rates", len(rates) == 3 and min(rates) >= 0 and max(rates) > 0, rates)
    counts = [r["processes"][0]["devices"][0]["allocations"] for r in two]
    times = [r["time_us"] for r in two]
    told = sum(rate * (after - before) / 1e6 for rate, before, after in zip(rates[1:], times, times[1:]))
    check("the counter goes on, and the rate is its rate", counts == sorted(counts) and counts[0] < counts[-1] and
          0.2 < told / (counts[-1] - counts[0]) < 5, (counts, times, rates))
    # A third one is of another version of the library, as they are while a cluster gets a new one.
    with open(journals_begun(room, waiting.pid)[0], "rb") as file:
        head = bytearray(file.read(1 << 16))
    head[8:12] = (2).to_bytes(4, "little")
    old = os.path.join(room.path, "old.journal")
    with open(old, "wb") as file:
        file.write(head)
    with subprocess.Popen([sys.executable, "-c", "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); input()",
                           old], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as third:
        third.stdout.readline()
        run = gpumem("top", "--json", "--once", "all")
        all_ = {p["pid"]: p["state"] for p in json.loads(run.stdout)["processes"]}
        check("all: both are found", [all_.get(p) for p in (waiting.pid, loop.pid)] == ["running"] * 2, all_)
        check("and one of another version, which is said, and no failure", all_.get(third.pid) == "unreadable" and run.returncode == 0 and
              re.search(r"^gpumem top: %d: a journal of format 2; this gpumem reads format \d+$" % third.pid, run.stderr, re.M), run)
        run = gpumem("top", "--once", str(third.pid), str(loop.pid))
        check("one that was named must be readable", run.returncode == 3 and "format 2" in run.stderr, run)
        third.communicate(b"\n")

    # ---- names that come late are no growth -----------------------------------------------------------------------
    # The journal of the first one, mapped by a process that gives the frames their names when it is told to.
    late = os.path.join(room.path, "late.journal")
    with open(journals_begun(room, waiting.pid)[0], "rb") as file:
        whole = bytearray(file.read())
    at, _, used = struct.unpack_from("<3Q", whole, 32 + 8 * 64)     # the region of frames
    named = bytes(whole[at:at + used])
    for frame in range(at, at + used, 48):
        struct.pack_into("<I", whole, frame + 12, 0)
    with open(late, "wb") as file:
        file.write(whole)
    names = os.path.join(room.path, "names")
    with open(names, "wb") as file:
        file.write(named)
    with subprocess.Popen([sys.executable, "-c", "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); "
                           "input(); n = open(sys.argv[2], 'rb').read(); m[%d:%d] = n; print(flush=True); input()" % (at, at + used), late, names],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as fourth:
        fourth.stdout.readline()
        with subprocess.Popen([GPUMEM, "top", "--json", "--no-lines", "-d", "0.1", str(fourth.pid)], stdout=subprocess.PIPE, text=True) as top:
            first = json.loads(top.stdout.readline())["processes"][0]["sites"]
            fourth.stdin.write(b"\n")
            fourth.stdin.flush()
            fourth.stdout.readline()
            for _ in range(2):      # one may have begun before
                last = json.loads(top.stdout.readline())["processes"][0]["sites"]
            top.terminate()
        check("names that come late: the same memory under other names, and no growth", any("+0x" in s["name"] for s in first) and
              not any("+0x" in s["name"] for s in last) and sum(s["live_bytes"] for s in first) == sum(s["live_bytes"] for s in last) and
              all(s["growth_bytes"] == 0 and s["blocks"] for s in last), (first, last))
        fourth.communicate(b"\n")

    # ---- a row stays the same row when other stacks begin to hold memory, also one that was there before -----------
    script = os.path.join(room.path, "rows.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("""
from host import alloc, free

def early(): return alloc(2 << 20)     # what was its place is kept()'s at first: no record has its stack
def kept(): return alloc(2 << 20)
def later(): return alloc(3 << 20)
def still(): return alloc(4 << 20)

still()
free(early())
one = kept()
print("there", flush=True)
input()
early(), later(), free(one)
print("there", flush=True)
input()
""")
    env = room.env(PYTHONPATH=PACKAGE + ":" + HERE, PYTHONDONTWRITEBYTECODE=1)
    with subprocess.Popen([sys.executable, script], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as fifth:
        fifth.stdout.readline()
        with subprocess.Popen([GPUMEM, "top", "--json", "-d", "0.1", str(fifth.pid)], stdout=subprocess.PIPE, text=True) as top:
            first = json.loads(top.stdout.readline())["processes"][0]["sites"]
            fifth.stdin.write("\n")
            fifth.stdin.flush()
            fifth.stdout.readline()
            for _ in range(2):      # one may have begun before
                last = json.loads(top.stdout.readline())["processes"][0]["sites"]
            top.terminate()
        fifth.communicate("\n")
    first, last = ({s["name"].split(" ")[0]: (s["live_bytes"], s["growth_bytes"]) for s in sites} for sites in (first, last))
    check("a row stays the same row", first == {"kept": (2 * MiB, 0), "still": (4 * MiB, 0)} and last == {
        "early": (2 * MiB, 2 * MiB), "kept": (0, -2 * MiB), "later": (3 * MiB, 3 * MiB), "still": (4 * MiB, 0)}, (first, last))

    text = gpumem("top", "--once", str(waiting.pid), str(loop.pid)).stdout
    check("as plain text, without a terminal", "\033" not in text and re.search(r"^ +%d +- +0 +\d+\.\d\d MiB" % waiting.pid, text, re.M) and
          re.search(r"^ +%d +- +host +1\.00 MiB" % waiting.pid, text, re.M) and "call site" in text and "main (" in text, text)
    check("the first line has each device once: in use, and of how much", re.search(
        r"^\d\d:\d\d:\d\d  \d process(es)? under libgpumem; device 0: \d\S* [MG]iB of \d\S* GiB in use$", text, re.M) and text.count("in use") == 1, text)
    run = gpumem("top", "-n", "2", "-d", "0.1", "--rows", "0", str(waiting.pid))
    check("-n 2: two reports; --rows 0", run.stdout.count("1 process under") == 2 and "main (" not in run.stdout and
          "... and " in run.stdout, run)

    # ---- wrong use ---------------------------------------------------------------------------------------------
    for words, status, said in [([], 2, "usage:"), (["nobody"], 2, "not a process id"), (["999999999"], 3, "no such process"),
                                ([str(os.getpid())], 3, "no journal"), (["--delay", "0", "all"], 2, "not seconds"),
                                (["-n", "none", "all"], 2, "not a number"), (["-n", "0", "all"], 2, "not a number")]:
        run = gpumem("top", *words)
        check("top %s: exit %d" % (" ".join(words), status), run.returncode == status and said in run.stderr, run)

    # ---- on a terminal -----------------------------------------------------------------------------------------
    pids = [str(waiting.pid), str(loop.pid)]
    with Screen([GPUMEM, "top", "-d", "0.1", *pids]) as screen:
        picture = screen.until("main (demo_app")
        check("a picture of both", picture and all(any(pid in line for line in picture) for pid in pids), screen.raw[-2000:])
        check("headings stand out", b"\033[1m" in screen.raw)
        check("it moves", screen.until(lambda p: p != picture))
        check("the site with the most is chosen", screen.until(lambda p: any(re.match(r">.*main \(demo_app", line) for line in p)))
        screen.press("?")
        check("? explains", screen.until("write a snapshot"))
        screen.press("?")
        screen.press("\r")
        picture = screen.until("the largest of its")
        check("enter: its stack", picture and any(re.match(r" +0  cudaMalloc", line) for line in picture) and
              any("main (demo_app" in line for line in picture[2:]), picture)
        screen.press("\033")
        check("escape: back", screen.until("by live"))
        for key, order in [("s", "by peak"), ("s", "by rate"), ("g", "by growth"), ("n", "by name"), ("b", "by blocks")]:
            screen.press(key)
            check("key %s: %s" % (key, order), screen.until(order))
        picture = screen.until("by blocks")
        rows = [line for line in picture or [] if "(demo_app" in line]
        check("and so they are", len(rows) == 2 and "loop_body" in rows[0] and "main (" in rows[1], picture)
        screen.press("\t")
        check("tab: the processes", screen.until(lambda p: any(re.match("> +%d" % min(map(int, pids)), line) for line in p)))
        screen.press("\033[B\033[B\033[B")
        last = max(waiting.pid, loop.pid)
        check("down: the last one", screen.until(lambda p: any(re.match("> +%d" % last, line) for line in p)))
        screen.press("\r")
        check("enter: that one alone", screen.until("process %d alone" % last))
        screen.press("w")
        path = screen.until(lambda p: any(re.search(r"outside\S*\.json", line) for line in p))
        found = wait_for(lambda: glob.glob(room.out + "/*.%d.outside*.json" % last))
        check("w: its snapshot, and where", path and found and load(found[0])["process"]["pid"] == last, (path, found))
        screen.press(" ")
        picture = screen.until("PAUSED")
        time.sleep(0.5)
        screen.read(0)
        check("space: it stands still", picture and screen.pictures()[-1][1:-1] == picture[1:-1], picture)
        screen.press(" ")
        check("and goes on", screen.until(lambda p: "PAUSED" not in p[0]))
        for rows, columns in [(24, 80), (13, 40), (8, 20), (3, 10), (2, 200), (1, 5), (1, 1), (60, 300), (200, 7)]:
            screen.resize(rows, columns)
            screen.raw = b""
            # The first may have been under way when the size changed; once one fits, so do those that follow.
            picture = screen.until(lambda p, rows=rows, columns=columns: len(p) == rows and max(map(len, p)) <= columns)
            screen.raw = b""
            picture = picture and screen.until(lambda p: True)
            check("%d by %d: it fits" % (rows, columns), picture and len(picture) == rows and max(map(len, picture)) <= columns, picture)
        for rows in (12, 9, 8):     # the last with room for both: what a split pane has
            screen.resize(rows, 80)
            screen.raw = b""
            picture = screen.until(lambda p, rows=rows: len(p) == rows and any("(demo_app" in line for line in p))
            check("%d rows: processes and call sites" % rows, picture and any(re.search(r"\d .* demo_app\S*$", line.rstrip()) for line in picture) and
                  any(re.search(r"(main|loop_body.*) \(demo_app", line) for line in picture), picture)
            check("%d rows: the device first: in use, of how much" % rows, picture and re.search(r"; device 0: \d\S* [MG]iB of \d\S* GiB in use", picture[0]), picture)
        screen.resize(24, 80)
        screen.raw = b""
        picture = screen.until(lambda p: any(re.search(r"(main|loop_body.*) \(demo_app", line) for line in p))
        check("80 columns: fewer numbers, but who it is", picture and any(re.search(r"%d .* demo_app" % last, line) for line in picture) and
              not any("limbo" in line for line in picture) and any("growth" in line for line in picture), picture)
        screen.resize(40, 150)
        check("150: all", screen.until("limbo"))
        screen.press("q")
        check("q: the end, exit 0, the terminal as it was", screen.ended() and screen.status == 0 and screen.restored(),
              (screen.status, screen.raw[-300:]))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV):
        with Screen([GPUMEM, "top", "-d", "0.1", *pids]) as screen:
            screen.until("main (demo_app")
            os.kill(screen.pid, number)
            check("%s: the terminal as it was, death by it" % number.name, screen.ended() and os.WIFSIGNALED(screen.status) and
                  os.WTERMSIG(screen.status) == number and screen.restored(), (screen.status, screen.raw[-300:]))
    with Screen([GPUMEM, "top", "-d", "0.1", *pids]) as screen:
        screen.until("main (demo_app")
        screen.press("\003")
        check("control-C on the terminal", screen.ended() and os.WIFSIGNALED(screen.status) and
              os.WTERMSIG(screen.status) == signal.SIGINT and screen.restored(), screen.status)
    with Screen([GPUMEM, "top", "-d", "0.1", *pids]) as screen:
        screen.until("main (demo_app")
        os.kill(screen.pid, signal.SIGSTOP)
        os.kill(screen.pid, signal.SIGCONT)
        screen.raw = b""
        check("stopped and continued: it draws anew", screen.until("main (demo_app"))
        screen.press("q")
        check("and ends well", screen.ended() and screen.status == 0 and screen.restored(), screen.status)
    # As under a shell: a group of its own in the foreground, a parent that hears when it stops.
    shell = """
import os, signal, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
stopped = os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
os.tcsetpgrp(0, os.getpid())
open(sys.argv[1], "w").write("stopped" if stopped else "ended")
while os.path.exists(sys.argv[1]):
    time.sleep(0.02)
os.tcsetpgrp(0, pid)
os.killpg(pid, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
"""
    note = os.path.join(room.path, "note")
    with Screen([sys.executable, "-c", shell, note, GPUMEM, "top", "-d", "0.1", *pids]) as screen:
        check("under a shell", screen.until("main (demo_app"))
        screen.press("\032")
        wait_for(lambda: os.path.exists(note) and open(note, encoding="ascii").read())
        screen.read(0.3)
        check("control-Z: it stops, and the terminal is as it was", open(note, encoding="ascii").read() == "stopped" and screen.restored(),
              screen.raw[-200:])
        screen.raw = b""
        os.unlink(note)
        check("continued: it has the terminal again and draws", screen.until("main (demo_app") and b"\033[?1049h" in screen.raw, screen.raw[:300])
        screen.press("q")
        check("and ends as well", screen.ended() and screen.status == 0 and screen.restored(), screen.status)
    with Screen([GPUMEM, "top", "-d", "0.1", *pids]) as screen:
        screen.until("main (demo_app")
        os.kill(screen.pid, signal.SIGTSTP)
        screen.raw = b""
        check("where nobody could continue it, it does not stop", screen.until("main (demo_app") and screen.until(lambda p: True))
        screen.press("q")
        check("and has the terminal", screen.ended() and screen.status == 0 and screen.restored(), screen.status)
    with Screen([GPUMEM, "top", "-d", "0.1", *pids], NO_COLOR="1") as screen:
        check("NO_COLOR: no style at all", screen.until("main (demo_app") and not re.search(rb"\033\[[0-9;]*m", screen.raw))
    with Screen([GPUMEM, "top", "-d", "0.1", *pids], TERM=None) as screen:
        check("nor without TERM", screen.until("main (demo_app") and not re.search(rb"\033\[[0-9;]*m", screen.raw))
    with Screen([GPUMEM, "top", "-b", "-n", "1", *pids], NO_COLOR="") as screen:
        check("--batch on a terminal: text, no second screen", screen.ended() and screen.status == 0 and b"call site" in screen.raw and
              b"\033[?1049h" not in screen.raw and b"\033[1m" in screen.raw, screen.raw)

    check("nobody was signalled, traced or stopped", (states(waiting.pid), states(loop.pid)) == before and
          waiting.child.poll() is None and loop.child.poll() is None, before)
    check("and no snapshot but the one asked for",
          [f for f in room.files() if str(waiting.pid) in f or str(loop.pid) in f] == sorted(
              os.path.basename(f) for f in glob.glob(room.out + "/*oom-1.json") + found),
          room.files())

    # ---- an end ------------------------------------------------------------------------------------------------
    with Screen([GPUMEM, "top", "-d", "0.1", *pids]) as screen:
        screen.until("main (demo_app")
        loop.kill()
        check("one that dies is said to have", screen.until(lambda p: any(pids[1] in line and "has ended" in line for line in p)))
        screen.press("q")
        screen.ended()
    run = gpumem("top", "--once", str(loop.pid))
    check("a dead one: exit 3", run.returncode == 3 and "no such process" in run.stderr, run)
    waiting.kill()
finish()
