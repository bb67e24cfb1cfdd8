"""scripts/lint.sh names the tools that are not here, and fails without them in CI. A commit's first line: lint, git's hook,
and how scripts/setup.sh puts the hook into a checkout."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, "test")
from tap import check, finish  # noqa: E402

TOOLS = ("shellcheck", "cppcheck", "clang", "node", "pyflakes3")
LONG = "area: " + "x" * 67


def lint(have, ci, works="exit 0", commits=None):
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
        for name, body in [(name, works) for name in have] + [("git", "echo '%s'" % commits)]:
            with open(os.path.join(place, name), "w", encoding="utf-8") as script:
                script.write("#!/bin/bash\n%s\n" % body)
            os.chmod(script.name, 0o755)
        env = {"PATH": place, "PYTHONPYCACHEPREFIX": place, "CI": ci}
        return subprocess.run(["bash", os.path.join(place, "scripts/lint.sh")], env=env, capture_output=True, text=True, check=False)


done = lint(TOOLS, "true", commits="0123abc " + LONG[:-1])
check("lint: with all of its tools it says nothing", not done.returncode and not done.stdout, done)
done = lint(TOOLS, "true", works="exit 1")
check("lint: they are asked", done.returncode and not done.stdout, done)
done = lint(TOOLS, "true", commits="0123abc " + LONG)
check("lint: a commit's first line of 73 characters is shown, and fails", done.returncode and LONG in done.stdout and
      "at most 72" in done.stdout, done)
for absent, ci in ((TOOLS, "true"), (TOOLS, ""), (TOOLS[2:3], "true")):
    done = lint([tool for tool in TOOLS if tool not in absent], ci)
    check("lint without %s%s: its last line says so, and it %s" % (" ".join(absent), ", in CI" if ci else "", "fails" if ci else "passes"),
          bool(done.returncode) == bool(ci) and done.stdout == "lint: not linted, for want of: %s\n" % " ".join(absent), done)


def git(place, *words):
    env = dict({k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, HOME=place, GIT_CONFIG_NOSYSTEM="1",
               GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b")
    return subprocess.run(["git", "-C", os.path.join(place, "tree"), *words], capture_output=True, text=True, env=env, check=False)


def checkout(place, *settings, hook=None):
    """A checkout that is set up, by a setup.sh that finds nothing missing; setting up may fail later, for want of a toolkit."""
    tree = os.path.join(place, "tree")
    os.makedirs(os.path.join(tree, "scripts"))
    shutil.copy("scripts/setup.sh", os.path.join(tree, "scripts"))
    shutil.copytree(".githooks", os.path.join(tree, ".githooks"))
    git(place, "init", "-q")
    for setting in settings:
        git(place, "config", *setting)
    if hook:
        with open(os.path.join(tree, ".git/hooks/commit-msg"), "w", encoding="utf-8") as script:
            script.write(hook)
    npm = os.path.join(place, "npm")
    with open(npm, "w", encoding="utf-8") as script:
        script.write("#!/bin/bash\nexit 0\n")
    os.chmod(npm, 0o755)
    return subprocess.run(["bash", os.path.join(tree, "scripts/setup.sh"), "check"], capture_output=True, text=True,
                          env=dict(os.environ, HOME=place, PATH=place + ":" + os.environ["PATH"]), check=False)


with tempfile.TemporaryDirectory() as place:
    done = checkout(place)
    check("setup.sh puts the hook into a checkout, and says so", "git's hook commit-msg" in done.stdout, done)
    for text, good in ((LONG[:-1], True), (LONG, False), ("area: ä" + "ö" * 65 + "\n\n" + "x" * 100, True), ("# no subject\n" + LONG, False)):
        done = git(place, "commit", "-q", "--allow-empty", "--cleanup=strip", "-m", text)
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
    fake(id="echo 0", apt_get="echo no network; exit 100")
    demo, whole = setup("demo"), setup("check")
    check("with root and without a network it does, too", demo.returncode == 0 and "gpumem will lack" in demo.stdout and "no network" in demo.stderr, demo)
    check("and the tests do not", whole.returncode == 1 and "could not install: libdw-dev" in whole.stderr, whole)
for what, words in (("a hook of the user's own", {"hook": "mine"}), ("a folder of hooks of the user's own", {"settings": True})):
    with tempfile.TemporaryDirectory() as place:
        done = checkout(place, *([("core.hooksPath", os.path.join(place, "mine"))] if "settings" in words else []), hook=words.get("hook"))
        path = os.path.join(place, "tree/.git/hooks/commit-msg")
        text = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        check("%s stays" % what, text == words.get("hook") and "git's hook" not in done.stdout and not os.path.exists(os.path.join(place, "mine")), (text, done))
finish()
