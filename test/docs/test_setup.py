"""scripts/setup.sh installs what its purpose needs and no more: tried on a machine that has nothing, whose apt-get writes down what it is asked for.
scripts/lint.sh names the tools that are not here, and fails without them in CI."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, "test")
from tap import check, finish  # noqa: E402

SETUP = os.path.abspath("scripts/setup.sh")
# Of each package here the presence shows by a program, so that a PATH without programs lacks all of them.
BY_PROGRAM = {"gcc", "g++", "make", "pkg-config", "libjansson-dev", "zlib1g-dev"}


def listed(purpose):
    done = subprocess.run([SETUP, "--list", purpose], capture_output=True, text=True, check=False)
    check("setup.sh --list %s lists packages" % purpose, done.returncode == 0 and done.stdout, done.stderr)
    return done.stdout.split()


def asked(purpose, apt="exit 1", user="0"):
    """What apt-get is asked to install where no program is to be found, and what is said."""
    with tempfile.TemporaryDirectory() as place:
        programs = {"apt-get": "echo \"$@\" >>%s/asked; %s" % (place, apt), "id": "echo %s" % user}
        for name, body in programs.items():
            with open(os.path.join(place, name), "w", encoding="utf-8") as script:
                script.write("#!/bin/bash\n%s\n" % body)
            os.chmod(script.name, 0o755)
        for name in ("bash", "tail", "mktemp", "rm"):
            os.symlink("/bin/" + name, os.path.join(place, name))
        done = subprocess.run(["/bin/bash", SETUP, purpose], env={"PATH": place, "CUDA_HOME": "/nowhere"},
                              capture_output=True, text=True, check=False)
        path = os.path.join(place, "asked")
        if not os.path.exists(path):
            return [], done
        with open(path, encoding="utf-8") as text:
            return [word for word in re.sub(r"^update$", "", text.read(), flags=re.M).split() if not word.startswith("-")], done


demo, everything, more = listed("demo"), listed("check"), listed("more")
check("what the tests need, make check-more needs", set(everything) < set(more), set(everything) - set(more))
check("what the demo needs, the tests need", set(demo) < set(everything), set(demo) - set(everything))
check("the demo needs neither clang nor Java nor a library of tests",
      not set(demo) & {"clang", "openjdk-17-jdk-headless", "check", "gcc-aarch64-linux-gnu"}, demo)
for purpose, packages in (("demo", demo), ("check", everything), ("more", more)):
    words, done = asked(purpose, apt="true")
    check("%s: what is missing is installed, and nothing else" % purpose, words and words[0] == "install" and
          BY_PROGRAM <= set(words[1:]) <= set(packages), words)
    check("%s: what does not answer afterwards is said" % purpose, done.returncode and "still does not answer" in done.stderr, done.stderr)
    words, done = asked(purpose, user="1000")
    check("%s: who is not root is told what to run, and nothing is tried" % purpose,
          not words and "Run as root: apt-get install gcc" in done.stderr, done.stderr)
words, done = asked("everything")
check("another purpose is refused with the usage", not words and done.returncode and "usage:" in done.stderr, done.stderr)


def viewer(npm, node="exit 0"):
    """The demo's set-up where nothing but the viewer's bundler is missing, with this npm and node."""
    with tempfile.TemporaryDirectory() as place:
        os.makedirs(os.path.join(place, "scripts"))
        shutil.copy(SETUP, os.path.join(place, "scripts"))
        for name, body in (("npm", npm), ("node", node)):
            with open(os.path.join(place, name), "w", encoding="utf-8") as script:
                script.write("#!/bin/bash\n%s\n" % body)
            os.chmod(script.name, 0o755)
        return subprocess.run(["/bin/bash", os.path.join(place, "scripts/setup.sh"), "demo"], capture_output=True, text=True,
                              env=dict(os.environ, PATH=place + ":" + os.environ["PATH"]), check=False)


done = viewer("exit 0")
check("demo: where node is, the viewer's page can be made", not done.returncode and "installing the viewer's bundler" in done.stdout and
      "no page" not in done.stdout, done)
done = viewer("exit 1")
check("demo: where npm fails, it goes on without the page and says so", not done.returncode and "no page" in done.stdout, done)
done = viewer("exit 1", node="exit 1")
check("demo: without node npm is not asked", not done.returncode and "viewer" not in done.stdout, done)

TOOLS = ("shellcheck", "cppcheck", "clang", "node")


def lint(have, ci, works="exit 0"):
    """scripts/lint.sh of a small tree, on a machine with these of its tools: stand-ins that do nothing but end so."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("allocator/a.c", "recorder/read/a.c", "preload/cache/cache_heap.c", "preload/cache/thread_cache.c", "tools/read/a.c",
                     "test/viewer/a.mjs", "test/bench/a.py", "test/gpu/a.py"):
            os.makedirs(os.path.join(place, os.path.dirname(name)), exist_ok=True)
            with open(os.path.join(place, name), "w", encoding="utf-8"):
                pass
        shutil.copytree("scripts", os.path.join(place, "scripts"), ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("bash", "cut", "dirname", "expand", "find", "grep", "python3", "sed"):
            os.symlink(shutil.which(name), os.path.join(place, name))
        for name in have:
            with open(os.path.join(place, name), "w", encoding="utf-8") as script:
                script.write("#!/bin/bash\n%s\n" % works)
            os.chmod(script.name, 0o755)
        env = {"PATH": place, "PYTHONPYCACHEPREFIX": place, "CI": ci}
        return subprocess.run(["bash", os.path.join(place, "scripts/lint.sh")], env=env, capture_output=True, text=True, check=False)


done = lint(TOOLS, "true")
check("lint: with all of its tools it says nothing", not done.returncode and not done.stdout, done)
done = lint(TOOLS, "true", works="exit 1")
check("lint: they are asked", done.returncode and not done.stdout, done)
for absent in (TOOLS, *((tool,) for tool in TOOLS)):
    said = "lint: not linted, for want of: %s\n" % " ".join(absent)
    for ci in ("true", ""):
        done = lint([tool for tool in TOOLS if tool not in absent], ci)
        check("lint without %s%s: its last line says so, and it %s" % (" ".join(absent), ", in CI" if ci else "", "fails" if ci else "passes"),
              bool(done.returncode) == bool(ci) and done.stdout == said, done)
    check("%s: the set-up for the check installs it" % absent[0], {"node": "nodejs"}.get(absent[0], absent[0]) in everything, everything)

with open("Makefile", encoding="utf-8") as text:
    MAKEFILE = text.read()
for target, purpose in (("demo", "demo"), ("check", "check"), ("check-more", "more")):
    check("make %s sets up for %s" % (target, purpose), re.search(r"^%s:\n\t\$\(Q\)scripts/setup\.sh %s$" % (target, purpose), MAKEFILE, re.M))
finish()
