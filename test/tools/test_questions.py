"""Tried as a new user would, from the manual page alone: six questions, one command each, on real programs."""
import glob
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
PAGE = gpumem("help", "--man", "gpumem").stdout.replace("\\-", "-").replace("\\&", "").replace("\\(aq", "'")
EXAMPLES = dict(re.findall(r"^\.TP\n(.*)\n\.B (gpumem .*)$", PAGE.split(".SH EXAMPLES")[1], re.M))


def ask(question, *files, cwd):
    """The page's own command for @question, with @files in the place of its files."""
    command = EXAMPLES.get(question)
    if not check("%s: the page has one command for it" % question, command, sorted(EXAMPLES)):
        return subprocess.CompletedProcess([], None, "", "")
    left = list(files)
    words = [left.pop(0) if re.search(r"\.json$|^FILE$|^[AB]$", word) and left else word for word in shlex.split(command)]
    check("%s: %s" % (question, command), not left, words)
    return subprocess.run([GPUMEM] + words[1:], capture_output=True, text=True, cwd=cwd, timeout=60, check=False)


with Room() as room:
    def record(name, *words, status=0):
        """`gpumem run`, as the page has it: the snapshots' path."""
        done = subprocess.run([GPUMEM, "run", "--output=%s.%%r.json" % name, "--", TRAINING, *words], cwd=room.out, text=True,
                              env=room.env(preload=False), capture_output=True, timeout=60, check=False)
        check("gpumem run: %s" % name, done.returncode == status and done.stderr, done)
        return [os.path.basename(p) for p in sorted(glob.glob(os.path.join(room.out, name + ".*.json")))]

    yesterday, = record("yesterday", "--batch", "8", "--leak")
    today, = record("today", "--batch", "8", "--leak", "--steps", "45")
    oom, _end = sorted(record("large", "--oom", "--leak", status=1), key=lambda p: "exit" in p)

    done = ask("who holds the memory", oom, cwd=room.out)
    check("who: the device, and the call sites with their bytes", done.returncode == 0 and "live 272.00 MiB in " in done.stdout and
          re.search(r"^ +168\.00 MiB +168\.00 MiB +12  make_moments", done.stdout, re.M), done.stdout[-1500:])
    done = ask("what leaked", today, cwd=room.out)
    check("what leaked: the stack that allocated it", done.returncode == 0 and re.search(
        r"^45\.00 MiB in 45 blocks.*\n +get \(.*app_training\.c:\d+\)\n +remember_loss \(.*app_training\.c:\d+\)\n(?: +.*\n)* +main", done.stdout, re.M), done.stdout)
    done = ask("why it ran out", oom, cwd=room.out)
    check("why: one sentence with who asked and what was missing, another with what to change", done.returncode == 0 and re.search(
        r"^why memory ran out evaluate \(app_training\.c:\d+\) asked for 7\.81 GiB on device 0, where .* too little\. .* That one request is more than all that the program held",
        done.stdout.replace("\n", " ").replace("why memory", "\nwhy memory"), re.M), done.stdout[:600])
    done = ask("what changed since yesterday", yesterday, today, cwd=room.out)
    rows = done.stdout.splitlines()
    check("what changed: what grew, and only that", done.returncode == 0 and len(rows) == 3 and re.search(
        r"\+25\.00 MiB +20\.00 MiB +45\.00 MiB +20 +45  remember_loss", rows[1]), done.stdout)
    done = ask("what a smaller split size would have saved", today, cwd=room.out)
    check("a smaller split size: what it would have saved, and what would have been better", done.returncode == 0 and
          re.search(r"^  max_split_size_mb +(would have saved nothing|\d+ would have reserved)", done.stdout, re.M) and
          re.search(r"^GPUMEM_CONF=\S+\nwould have reserved [0-9.]+ MiB less", done.stdout, re.M), done.stdout)
    done = ask("is the run within its limit", yesterday, cwd=room.out)
    check("within its limit: no, with what is beyond it", done.returncode == 1 and "leak" in done.stdout and "max-peak" not in done.stdout, done)
    tidy, = record("tidy", "--steps", "3")
    done = subprocess.run([GPUMEM, "check", "--max-peak", "10GiB", "--max-reserved", "10GiB", tidy], cwd=room.out, check=False, capture_output=True)
    check("and exit 0 where it is", done.returncode == 0, done)
finish()
