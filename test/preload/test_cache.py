#!/usr/bin/env python3
# timeout: 600
"""The tests of the record, of ends, habits, crashes, kills and storms once more, with the caching allocator as the programs' own is:
shorter, since they have run at length without it. Lines of a test that failed are shown.

Words after the script's name choose among them: "crash", "storms", ...
"""
import os
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, check, finish  # noqa: E402

SCRIPTS = {
    "exit": {}, "fork": {}, "signal": {}, "host": {}, "threads": {}, "stack": {},
    "api": {}, "abi": {}, "options": {}, "resolve": {}, "history": {}, "oom": {},
    "conservation": {}, "kinds": {}, "frees": {}, "graph": {}, "context": {}, "fail": {},
    "summary": {"where": "tools"}, "leaks": {"where": "tools"},
    "crash": {"GM_KILLS": "40", "words": ("faults", "hard", "handlers", "children", "at_random")},
    "kills": {"GM_KILLS": "40"},
    "storms": {"GM_STORM_SECONDS": "1", "words": ("fork", "signal", "cancel", "all")},
}


def again(name, words=(), where="preload", **options):
    done = subprocess.run([sys.executable, "test/%s/test_%s.py" % (where, name), *words], timeout=300, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, B=B, TEST_ALLOCATOR="caching", **options), check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = done.stdout.splitlines()
    passed = sum(line.startswith("ok ") for line in lines)
    failed = [line for line in lines if line.startswith("not ok ")]
    for line in lines:
        if line.startswith("# "):
            print(line)
    for line in failed if failed else lines[-20:] if done.returncode else []:
        print("# %s: %s" % (name, line))
    check("%s: %d tests under the caching allocator" % (name, passed), done.returncode == 0 and passed > 0 and not failed,
          failed[:3] or "exit %d: %s" % (done.returncode, lines[-3:]))


for chosen in sys.argv[1:] or SCRIPTS:
    again(chosen, **SCRIPTS[chosen])
finish()
