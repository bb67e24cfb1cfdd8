"""gpumem view: a page of snapshots, journals, processes and pickles; where it goes, and what is refused. What the page shows is tested in test/viewer."""
import base64
import glob
import json
import os
import re
import stat
import sys
import zlib

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from screen import Screen  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import Program, gpumem, killed_journal, load  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
PICKLE = os.path.abspath("test/data/torch-snapshot.pickle")


def packs(html):
    """The headers of the snapshots in a page, and that their columns are as long as the headers say."""
    found = []
    for text in re.findall(r'<script type="text/plain" class="snapshot">([^<]*)</script>', html):
        raw = zlib.decompress(base64.b64decode(text, validate=True), 31)
        length = int.from_bytes(raw[14:18], "little")
        header = json.loads(raw[18:18 + length])
        whole = raw[:14] == b"gpumem-view 1\n" and len(raw) == 18 + length + sum(c[2] * c[3] for c in header["columns"])
        found.append((header, whole))
    return found


def read(path):
    with open(path, encoding="utf-8") as page:
        return page.read()


with Room() as room:
    room.run([TRAINING, "--steps", "4", "--leak"])
    good = glob.glob(room.out + "/*exit.json")[0]
    page = os.path.join(room.path, "page.html")
    run = gpumem("view", "-o", page, good, PICKLE)
    html = read(page)
    check("a page of two snapshots", run.returncode == 0 and not run.stdout and not run.stderr, run)
    check("which is for its owner alone", stat.S_IMODE(os.stat(page).st_mode) == 0o600, oct(os.stat(page).st_mode))
    headers = packs(html)
    check("both are in it, whole, in their order", [(h["name"], whole) for h, whole in headers] ==
          [(os.path.basename(good), True), ("torch-snapshot.pickle", True)], [(h["name"], whole) for h, whole in headers])
    snapshot = load(good)
    check("with what the snapshot says about itself", headers[0][0]["root"]["process"] == snapshot["process"] and
          headers[0][0]["root"]["devices"] == snapshot["devices"])
    counts = {c[0]: c[3] for c in headers[0][0]["columns"]}
    check("and all its events", counts["0.time"] == len(snapshot["device_traces"][0]["time_us"]) > 20, counts)
    check("the page names no other place: it asks for nothing", not re.findall(r'(?:src|href)\s*=\s*"(?!data:)', html) and
          "default-src 'none'" in html and "connect-src" not in html)
    check("standard output is the same page", gpumem("view", good, PICKLE).stdout == html)

    pid, journal = killed_journal(room, 0.2)
    check("a journal", [w for _, w in packs(gpumem("view", journal).stdout)] == [True])
    with Program(room, TRAINING, "--steps", "3", "--wait") as program:
        check("the program waits", program.until("waiting"))
        (header, whole), = packs(gpumem("view", str(program.pid)).stdout)
        check("a living process", whole and header["root"]["process"]["pid"] == program.pid, header["root"]["process"])

    for words, status, said in ((["-o", "x.svg", good], 2, "what is written is no .svg: name it .html"), (["--open", "-o", "-", good], 2, "two places"),
                                (["-o", os.path.join(room.path, "none", "x.html"), good], 1, "No such file"), ([good, "not there"], 3, "not there")):
        run = gpumem("view", *words, cwd=room.path)
        check("view %s: exit %d, %s, no page" % (" ".join(os.path.basename(w) for w in words), status, said),
              run.returncode == status and said in run.stderr and run.stderr.count("\n") == 1 and not run.stdout, run)
    with Screen([GPUMEM, "view", good]) as screen:
        check("a terminal gets no page", screen.ended() and os.waitstatus_to_exitcode(screen.status) == 2 and b"not for a terminal" in screen.raw and len(screen.raw) < 300, screen.raw[:300])

    # ---- --open, with a desktop of our own ----------------------------------------------------------------------------------
    desk = os.path.join(room.path, "desk")
    os.mkdir(desk)
    with open(os.path.join(desk, "xdg-open"), "w", encoding="utf-8") as script:
        script.write('#!/bin/sh\nprintf %%s "$1" >%s/opened\n' % desk)
    os.chmod(script.name, 0o755)
    run = gpumem("view", "--open", good, env={"PATH": desk + ":" + os.environ["PATH"], "XDG_RUNTIME_DIR": room.path})
    opened = read(os.path.join(desk, "opened")) if os.path.exists(os.path.join(desk, "opened")) else ""
    check("--open: the desktop is given a page of its own, whose name is printed", run.returncode == 0 and run.stdout == opened + "\n" and
          opened.startswith(room.path + "/gpumem-view-") and packs(read(opened))[0][1], (run, opened))
    check("for its owner alone", opened and stat.S_IMODE(os.stat(opened).st_mode) == 0o600)
    os.unlink(os.path.join(desk, "xdg-open"))
    run = gpumem("view", "--open", "-o", page, good, env={"PATH": desk})
    check("without a desktop the page is there, and said to be", run.returncode == 1 and run.stdout == page + "\n" and "open the page by hand" in run.stderr, run)
    before = set(os.listdir(room.path))
    run = gpumem("view", "--open", "not there", env={"PATH": desk, "XDG_RUNTIME_DIR": room.path})
    check("--open of what is not there leaves nothing behind", run.returncode == 3 and set(os.listdir(room.path)) == before, run)

finish()
