"""gpumem recover: journals of the dead become snapshots, those of the living are left alone."""
import glob
import json
import mmap
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, LIBRARY, Room, check, finish  # noqa: E402
from verbs import APP, Program, blocks, gpumem, has_allocated, journals_begun, killed_journal, load, replay, wait_for  # noqa: E402

with Room() as room:
    counts = os.path.join(room.path, "counts")
    pid, journal = killed_journal(room, 0.5, "--threads", "4", "--count-file", counts)
    done = gpumem("recover", journal, cwd=room.path)
    found = glob.glob(room.path + "/gpumem.*.recovered.json")
    check("a killed program's journal becomes a snapshot", done.returncode == 0 and len(found) == 1, done)
    snapshot = load(found[0])
    check("it says that it was recovered, and of whom", snapshot["reason"] == "recovered" and
          snapshot["recovered"]["after_death"] and snapshot["process"]["pid"] == pid, snapshot["process"])
    check("the text names the file, the pid and what was in flight", found[0] in done.stdout and
          "pid %d" % pid in done.stdout and done.stdout.count("in flight") == len(snapshot["recovered"]["in_flight"]),
          done.stdout)
    check("the journal is gone", not os.path.exists(journal))
    check("nothing is in it twice or missing", snapshot["history"]["dropped"] or replay(snapshot) == blocks(snapshot),
          len(snapshot["segments"]))
    with open(counts, "rb") as file:
        words = struct.unpack("128Q", mmap.mmap(file.fileno(), 1024, access=mmap.ACCESS_READ)[:])
    stats = [d["memory_stats"] for d in snapshot["devices"]] + [snapshot["host"]["memory_stats"]]
    allocated = sum(s["allocation.all.allocated"] for s in stats)
    freed = sum(s["allocation.all.freed"] for s in stats)
    check("every call that had returned is there (%d, %d)" % (sum(words[0::2]), sum(words[1::2])),
          sum(words[0::2]) <= allocated <= sum(words[0::2]) + 4 and sum(words[1::2]) <= freed <= sum(words[1::2]) + 4,
          (sum(words[0::2]), allocated, sum(words[1::2]), freed))

with Room() as room:
    pid, journal = killed_journal(room, 0.1)
    done = [gpumem("recover", "--keep", "-o", "x.%p.json", journal, cwd=room.path) for _ in range(2)]
    check("--keep leaves the journal, and no snapshot replaces another", os.path.exists(journal) and
          os.path.exists(room.path + "/x.%d.json" % pid) and os.path.exists(room.path + "/x.%d-2.json" % pid), done)
    check("two recoveries tell the same", load(room.path + "/x.%d.json" % pid) == load(room.path + "/x.%d-2.json" % pid))
    before = room.files()
    elsewhere = os.path.join(room.path, "elsewhere")
    os.mkdir(elsewhere)
    done = gpumem("recover", "--keep", journal, cwd=elsewhere)
    check("the path that the journal names is not written to", room.files() == before and
          len(os.listdir(elsewhere)) == 1, os.listdir(elsewhere))
    done = gpumem("recover", "--keep", "--json", "-o", "y.json", journal, cwd=room.path)
    told = json.loads(done.stdout)
    check("--json: a list of objects", len(told) == 1 and told[0]["pid"] == pid and told[0]["error"] is None and
          told[0]["snapshot"] == room.path + "/y.json" and told[0]["live_bytes"] ==
          sum(d["memory_stats"]["requested_bytes.all.current"] for d in load(room.path + "/y.json")["devices"]), done.stdout)
    place = {"GPUMEM_JOURNAL": room.journals, "GPUMEM_OUTPUT": room.path + "/%p-%r.json"}
    done = gpumem("recover", str(pid + 1), env=place)
    check("a pid without a journal: exit 3, nothing done", done.returncode == 3 and str(pid + 1) in done.stderr and
          os.path.exists(journal), done)
    asked = (["summary"], ["leaks"], ["events"], ["view", "-o", room.path + "/page.html"], ["top", "--once"], ["ctl"], ["snapshot"])
    done = [gpumem(*words, str(pid), env=place) for words in asked]
    check("other verbs name the one that reads what a dead process left", all(
        run.returncode == 3 and "no such process" in run.stderr and "gpumem recover %d" % pid in run.stderr for run in done), done)
    done = gpumem("recover", str(pid), env=place)
    check("by pid, to where GPUMEM_OUTPUT says", done.returncode == 0 and
          os.path.exists(room.path + "/%d-recovered.json" % pid) and not os.path.exists(journal), done)
    done = gpumem("summary", str(pid), env=place)
    check("but not once it left nothing", done.returncode == 3 and "no such process\n" in done.stderr, done)

with Room() as room:
    dead = [killed_journal(room, 0.05)[0] for _ in range(3)]
    with Program(room, APP, "--wait", "60") as living:
        check("a living program", living.until("waiting"))
        [journal] = [j for j in room.journal_files() if ".%d." % living.pid in j]
        done = gpumem("recover", journal, cwd=room.path)
        check("the journal of a living process is left alone: exit 1", done.returncode == 1 and
              "lives" in done.stderr and os.path.exists(journal) and not glob.glob(room.path + "/*.json"), done)
        done = gpumem("recover", str(living.pid))
        check("by pid, of a journal in a place of its own: it runs, and what to do", done.returncode == 3 and "still runs" in done.stderr and
              "`gpumem snapshot %d`" % living.pid in done.stderr, done)
        done = gpumem("recover", room.journals, cwd=room.path)
        check("a directory: all the dead, not the living", done.returncode == 0 and room.journal_files() == [journal] and
              len(glob.glob(room.path + "/*.recovered.json")) == 3 and
              all("pid %d) died" % p in done.stdout for p in dead), done)
    done = gpumem("recover", room.journals, cwd=room.path)
    check("once it is dead, it is recovered, and the empty directory goes", done.returncode == 0 and
          os.listdir(room.journals) == [], done)
    done = gpumem("recover", room.journals, cwd=room.path)
    check("nothing to recover: exit 0 and a line", done.returncode == 0 and "no journal" in done.stdout, done)

with Room() as room:
    waiting = ("import ctypes, time; c = ctypes.CDLL('libcuda.so.1'); x = ctypes.c_void_p(); c.cuInit(0); "
               "c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0); print('ready', flush=True); time.sleep(60)")
    with Program(room, sys.executable, "-c", waiting) as program:
        program.until("ready")
        journal = wait_for(room.journal_files)
    done = gpumem("recover", *(journal or ["none"]), cwd=room.path)
    check("a program that never allocated: no snapshot, and no journal left", done.returncode == 0 and
          "never allocated" in done.stdout and not glob.glob(room.path + "/*.json") and not room.journal_files(), done)

with Room() as room:
    pid, journal = killed_journal(room, 0.1)
    size = os.path.getsize(journal)
    bad = os.path.join(room.path, "bad.journal")

    def wrong(name, make, says):
        subprocess.run(["cp", "--sparse=always", journal, bad], check=True)
        make()
        run = gpumem("recover", bad, cwd=room.path)
        check("%s: exit 3, and why" % name, run.returncode == 3 and bad in run.stderr and says in run.stderr and
              (os.path.exists(bad) or says == "No such file") and not glob.glob(room.path + "/*.json"), run)

    def write(offset, data):
        with open(bad, "r+b") as file:
            file.seek(offset)
            file.write(data)

    subprocess.run(["cp", "--sparse=always", journal, bad], check=True)
    with open(bad, "rb") as file:
        name = file.read(1 << 14).find(os.path.basename(APP).encode() + b"\0")
    write(name, b"a\xff\xed\xa0\x80\x01\"\xc3\xa9\xf0\x9f\x98\x80\xc3\0")
    done = [gpumem("recover", "--keep", "-o", room.path + "/odd", bad)] + [
        gpumem("convert", "--to", "gpumem", path) for path in (room.path + "/odd", bad)]
    check("a journal is read as its snapshot is, also where it is no UTF-8", [d.returncode for d in done] == [0, 0, 0] and
          done[1].stdout == done[2].stdout and json.loads(done[2].stdout)["process"]["command"] ==
          "a" + 4 * "\ufffd" + "\x01\"\u00e9\U0001f600\ufffd", [d.stderr for d in done])
    os.unlink(room.path + "/odd")

    wrong("cut off in its tables", lambda: os.truncate(bad, 1 << 20), "cut off")
    wrong("cut off in its header", lambda: os.truncate(bad, 5000), "only 5000 bytes")
    wrong("empty", lambda: os.truncate(bad, 0), "empty")
    wrong("no journal", lambda: write(0, b"\x7fELF"), "not a journal")
    wrong("another version", lambda: write(8, struct.pack("I", 99)), "format 99")
    wrong("damaged", lambda: write(32, struct.pack("Q", 1 << 50)), "damaged")
    wrong("missing", lambda: os.unlink(bad), "No such file")
    os.mkfifo(bad)
    done = gpumem("recover", bad, cwd=room.path)
    check("a pipe: exit 3, at once", done.returncode == 3 and "not a regular file" in done.stderr, done)
    done = gpumem("recover", room.path + "/nowhere", cwd=room.path)
    check("a directory that is not there: exit 3", done.returncode == 3, done)
    for words in (["--frobnicate"], ["-o"], ["--all", journal]):
        done = gpumem("recover", *words)
        check("wrong use (%s): exit 2 and the usage" % words[0], done.returncode == 2 and "usage:" in done.stderr, done)

    full = os.path.join(room.path, "full")
    os.mkdir(full)
    script = 'mount -t tmpfs -o size=4k none "$1" && "$2" recover -o "$1/a.json" "$3"; echo "status $? $(ls -A "$1")"'
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    done = subprocess.run([*unshare, "sh", "-c", script, "sh", full, GPUMEM, journal], capture_output=True, text=True,
                          timeout=60, check=False)
    check("no room for the snapshot: exit 3, nothing half written, the journal stays", "status 3 \n" in done.stdout and
          "No space left" in done.stderr and os.path.exists(journal) and os.path.getsize(journal) == size, done)

def on_full_disk(allocs):
    """100 blocks; then others fill the journal's file system; then @allocs more, and the end by SIGKILL. What the program and
    recover said, and the snapshot."""
    fill = "head -c 64m /dev/zero >%s/full 2>/dev/null" % room.journals
    script = 'mount -t tmpfs -o size=16m none "$1" && shift && "$@"; "$GPUMEM" recover -o "$ROOM/a.json" "$GPUMEM_JOURNAL"'
    words = [os.path.join(B, "test/preload/script"), "many 100", "system " + fill, "many %d" % allocs, "sleep 300", "kill 9"]
    env = dict(room.env(preload=False), GPUMEM=GPUMEM, ROOM=room.path, GPUMEM_JOURNAL=room.journals)
    run = subprocess.run([*unshare, "sh", "-c", script, "sh", room.journals, "env", "LD_PRELOAD=" + LIBRARY,
                          "GPUMEM_ALLOCATOR=native", *words], capture_output=True, text=True, timeout=100, check=False, env=env)
    return run, load(room.path + "/a.json")

with Room() as room:
    run, snapshot = on_full_disk(900)
    check("a disk that others fill: room is set aside for what is live", len(blocks(snapshot)) == 1000 and "gpumem:" not in
          run.stderr and "incomplete" not in run.stdout and not snapshot["refused"]["blocks"] + snapshot["refused"]["segments"],
          (run, len(blocks(snapshot)), snapshot["refused"]))

with Room() as room:
    run, snapshot = on_full_disk(30000)
    missing = 30100 - len(blocks(snapshot))
    check("and where that is used up: the program, recover and the snapshot say so", 0 < missing < 30000 and
          run.stderr.count("gpumem: the journal has no room for all that is allocated") == 1 and
          "incomplete: %d records found no room" % missing in run.stdout and
          snapshot["refused"]["blocks"] + snapshot["refused"]["segments"] == missing, (run, missing, snapshot["refused"]))

with Room() as room:
    # Its own pid namespace: its pids are ours as well, and mean other processes.
    inside = ["unshare", "-pf"] if os.geteuid() == 0 else ["unshare", "-rpf"]
    counts = os.path.join(room.path, "counts")
    with Program(room, *inside, "--kill-child", APP, "--loop", "--max-seconds", "60", "--count-file", counts) as program:
        wait_for(lambda: has_allocated(counts))
        journals = wait_for(lambda: journals_begun(room))  # its child of the beginning has ended, with its own
        done = gpumem("recover", *journals, cwd=room.path)
        check("a living process in another pid namespace is left alone", done.returncode == 1 and
              os.path.exists(journals[0]), done)
        # Its helper thread, which holds what tells of its death, may begin late on a busy machine: once it answers.
        with open("/proc/%d/task/%d/children" % (program.pid, program.pid), encoding="utf-8") as children:
            child = children.read().split()[0]
        done = gpumem("ctl", child, "history", "state")
        check("it answers across pid namespaces", done.returncode == 0, done)
        program.kill()
    wait_for(lambda: gpumem("recover", "--keep", "-o", "a.json", journals[0], cwd=room.path).returncode == 0, 20)
    check("once it is dead, it is recovered", os.path.exists(room.path + "/a.json"), os.listdir(room.path))
    check("its pid is the one it had inside", load(room.path + "/a.json")["process"]["pid"] < 100)

with Room() as room:
    # Without an argument, and with --all: every place by itself. In a mount namespace with a TMPDIR of its own, so that the
    # machine's own journals stay untouched.
    own = dict(room.env(preload=False), TMPDIR=room.path)
    own.pop("XDG_RUNTIME_DIR", None)
    script = """
        mount -t tmpfs none /dev/shm && cd "$1" || exit 9
        env LD_PRELOAD="$2" "$3" --loop --max-seconds 60 --count-file counts >/dev/null 2>&1 & one=$!
        env LD_PRELOAD="$2" "$3" --wait 60 >waiting 2>&1 & two=$!
        for i in $(seq 1000); do [ "$(ls /dev/shm/gpumem-*/*.journal 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.02; done
        until grep -q waiting waiting && [ -n "$(tr -d '\\0' <counts)" ]; do sleep 0.02; done
        kill -KILL $one
        wait $one
        ls -l --full-time /dev/shm/gpumem-* >before
        "$4" recover; echo "status $?"
        "$4" recover --json >listed.json; echo "status $?"
        ls -l --full-time /dev/shm/gpumem-* >after
        ls *.recovered.json; cmp before after; echo listed "$?"
        "$4" recover --all; echo "status $?"
        kill -KILL $two
        wait $two
        "$4" recover --all; echo "status $?"
        "$4" recover --all; echo "status $?"
        ls -d /dev/shm/gpumem-*
    """
    done = subprocess.run([*unshare, "sh", "-c", script, "sh", room.path, LIBRARY, APP, GPUMEM], capture_output=True,
                          text=True, timeout=100, check=False, cwd=room.path, env=own)
    listed, _, taken = done.stdout.partition("listed 0\n")
    check("no argument: lists the dead with their journals, and says how to take them", taken and
          re.search(r"^demo_app\S* \(pid \d+\) died with .*\n  /dev/shm/gpumem-\d+/\S+\.journal$", listed, re.M) and
          "lives: its journal is left alone" in listed and "--all" in listed, done)
    check("no argument: writes nothing and takes nothing", taken and ".recovered.json" not in listed.replace("*.recovered.json", "") and
          not done.stdout.count("differ"), done)
    found = load(os.path.join(room.path, "listed.json"))
    check("no argument, --json: the same", {one["alive"] for one in found} == {True, False} and
          all(one["journal"] and not one["snapshot"] and not one["removed"] for one in found), found)
    check("--all: all the dead of every place, not the living", taken.count("died with") >= 2 and
          "lives: its journal is left alone" in taken and done.stdout.count("status 0") == 5 and
          len(glob.glob(room.path + "/*.recovered.json")) == taken.count("died with"), done)
    check("a shared place's directory stays", done.stdout.rstrip().split("\n")[-1].startswith("/dev/shm/gpumem-"), done)

finish()
