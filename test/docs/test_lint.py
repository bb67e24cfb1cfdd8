"""scripts/lint.sh names the tools that are not here, and fails without them in CI. A commit's first line: lint and git's hook.
scripts/setup.sh for the demo and for the check, where a package is missing that the demo can do without."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, "test")
from tap import check, finish  # noqa: E402

TOOLS = ("shellcheck", "cppcheck", "clang", "node")
LONG = "area: " + "x" * 67


def lint(have, ci, commits=None):
    """scripts/lint.sh of a small tree, on a machine with these of its tools: stand-ins that do nothing but end so."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("allocator/a.c", "recorder/read/a.c", "preload/cache/cache_heap.c", "preload/cache/thread_cache.c", "tools/read/a.c",
                     "test/viewer/a.mjs", "test/bench/a.py", "test/gpu/a.py"):
            os.makedirs(os.path.join(place, os.path.dirname(name)), exist_ok=True)
            with open(os.path.join(place, name), "w", encoding="utf-8"):
                pass
        if commits:
            os.mkdir(os.path.join(place, ".git"))
        shutil.copytree("scripts", os.path.join(place, "scripts"), ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("bash", "cut", "dirname", "expand", "find", "grep", "nproc", "python3", "sed", "xargs"):
            os.symlink(shutil.which(name), os.path.join(place, name))
        for name, body in [(name, "exit 0") for name in have] + [("git", "echo '%s'" % commits)]:
            with open(os.path.join(place, name), "w", encoding="utf-8") as script:
                script.write("#!/bin/bash\n%s\n" % body)
            os.chmod(script.name, 0o755)
        env = {"PATH": place, "PYTHONPYCACHEPREFIX": place, "CI": ci}
        return subprocess.run(["bash", os.path.join(place, "scripts/lint.sh")], env=env, capture_output=True, text=True, check=False)


done = lint(TOOLS, "true", commits="0123abc " + LONG)
check("lint: a commit's first line of 73 characters is shown, and fails", done.returncode and LONG in done.stdout and
      "at most 72" in done.stdout, done)
for absent, ci in ((TOOLS, ""), (TOOLS[2:3], "true")):
    done = lint([tool for tool in TOOLS if tool not in absent], ci)
    check("lint without %s%s: its last line says so, and it %s" % (" ".join(absent), ", in CI" if ci else "", "fails" if ci else "passes"),
          bool(done.returncode) == bool(ci) and done.stdout == "lint: not linted, for want of: %s\n" % " ".join(absent), done)


with tempfile.TemporaryDirectory() as place:
    message = os.path.join(place, "message")
    for text, good in ((LONG[:-1], True), (LONG, False), ("area: ä" + "ö" * 65 + "\n\n" + "x" * 100, True), ("# no subject\n" + LONG, False)):
        with open(message, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([".githooks/commit-msg", message], capture_output=True, text=True, check=False)
        check("a commit of %d characters is %s" % (len(text.split("\n")[0]), "made" if good else "refused"),
              (done.returncode == 0) == good and ("72 are the most" in done.stderr) != good, done)
with tempfile.TemporaryDirectory() as place:        # without the headers of libdw, which the demo does not need
    def fake(**programs):
        for name, text in programs.items():
            path = os.path.join(place, name.replace("_", "-"))
            with open(path, "w", encoding="utf-8") as script:
                script.write("#!/bin/bash\n%s\n" % text)
            os.chmod(path, 0o755)

    def setup(purpose):
        return subprocess.run(["bash", os.path.join(place, "tree/scripts/setup.sh"), purpose], capture_output=True, text=True,
                              env=dict(os.environ, PATH=place + ":" + os.environ["PATH"]), check=False)

    os.makedirs(os.path.join(place, "tree/scripts"))
    shutil.copy("scripts/setup.sh", os.path.join(place, "tree/scripts"))
    fake(pkg_config='[ "$2" != libdw ]', id="echo 1000", npm="exit 0")
    demo, whole = setup("demo"), setup("check")
    check("without root the demo does without source lines, and says so", "gpumem will lack" in demo.stdout and "libdw-dev" in demo.stdout and
          "libdw-dev" not in demo.stderr, demo)
    check("the tests do not", whole.returncode == 1 and "missing: libdw-dev" in whole.stderr, whole)
finish()
