# timeout: 900
"""Python stacks in every interpreter there is: whose line allocated what, held against the interpreter's own stacks.

Those of this machine, on the PATH and where pyenv, uv and conda put them. With PYTHON_ROOTS instead those of the releases of
Debian that scripts/pythons.sh unpacked there (make check-pythons), which test/unit/python/frames.py compares, too. And those
that PYTHONS names, with colons between. One that has its symbols is tried without them, and a libpython in a program that
loads it.
"""
import glob
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, FAKE, Room, check, finish, tell  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DEPTH = 256
PLACES = ["/usr/bin", "/usr/local/bin", "~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin", "~/miniconda3/bin",
          "~/miniforge3/bin", "~/miniconda3/envs/*/bin", "/opt/conda/bin", "/opt/*/bin"]
ABOUT = ("import asyncio, ctypes, sys, sysconfig; print(sys.version.split()[0], int(hasattr(sys, 'gettotalrefcount')), "
         "sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sys.prefix)")


class Python:
    """One interpreter: how it is started, and what it says of itself."""

    def __init__(self, path, before=(), env=None, kind=""):
        self.path, self.before, self.env, self.kind = path, list(before), dict(env or {}), kind
        done = subprocess.run(self.command("-c", ABOUT), env=dict(os.environ, **self.env), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        self.works = done.returncode == 0 and done.stdout.count(" ") == 3
        if self.works:
            version, debug, free, self.prefix = done.stdout.split()
            self.version = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2])
            self.name = version + ("t" if free != "0" else "") + (" debug" if debug != "0" else "") + kind

    def command(self, *arguments):
        return self.before + [self.path] + list(arguments)


def is_python(path):
    return os.access(path, os.X_OK) and os.path.basename(path).replace("python3", "", 1).strip(".0123456789td") == ""


def here(installed):
    """Each that PYTHONS names, and that is installed if @installed; once."""
    names = [n for n in os.environ.get("PYTHONS", "").split(":") if n] + [sys.executable] * installed
    for place in (os.environ.get("PATH", "").split(":") + PLACES) * installed:
        names += [p for p in sorted(glob.glob(os.path.join(os.path.expanduser(place), "python3*"))) if is_python(p)]
    found = {}
    for path in names:
        if os.path.realpath(path) not in found:
            with open(path, "rb") as program:
                if program.read(4) != b"\x7fELF":       # pyenv's shims
                    continue
            found[os.path.realpath(path)] = Python(os.path.realpath(path) if "pyenv" in path else path)
    return [python for python in found.values() if python.works and python.version >= (3, 8)]


def of_root(root, embed):
    """Those of another release: by its own loader where its C library is there, otherwise by this machine's."""
    folders = [f for f in glob.glob(root + "/usr/lib/*-linux-gnu*") + glob.glob(root + "/lib/*-linux-gnu*") if os.path.isdir(f)]
    loaders = [f for d in folders for f in glob.glob(d + "/ld-linux*.so.*")]
    paths = ":".join([FAKE] + folders)
    before = [loaders[0], "--library-path", paths] if loaders else []
    env = {"PYTHONHOME": root + "/usr"}
    if not before:
        env["LD_LIBRARY_PATH"] = paths
    found = [Python(p, before, env) for p in sorted(glob.glob(root + "/usr/bin/python3.*"))
             if is_python(p) and not os.path.islink(p)]
    for library in sorted(glob.glob(root + "/usr/lib/*/libpython3.*.so.1.0")):
        if embed and not library.endswith("d.so.1.0"):
            found.append(Python(library, before + [embed], env, ", loaded"))
    return found


def stripped(room, python):
    """A copy without symbols; None where there are none, or what is installed is a script or a small program."""
    strip = shutil.which("strip")
    copy = os.path.join(room.path, "python3-stripped-%d" % len(os.listdir(room.path)))
    sections = subprocess.run(["readelf", "-SW", python.path], stdout=subprocess.PIPE, text=True, check=False).stdout
    if not strip or ".symtab" not in sections or python.kind or \
            subprocess.run([strip, "-o", copy, python.path], stderr=subprocess.DEVNULL, check=False).returncode:
        return None
    return Python(copy, python.before, dict(python.env, PYTHONHOME=python.prefix), ", stripped")


def own_and_ours(python, depth, **options):
    """The allocations of stacks.py, each with the interpreter's stack and ours; a word on why there are none."""
    with Room() as room:
        result = os.path.join(room.path, "own.json")
        command = python.command(os.path.join(HERE, "stacks.py"), result, str(depth))
        done = room.run(command, timeout=120, stack_depth=DEPTH, **dict(python.env, **options))
        snapshots = room.snapshots("exit")
        if done.returncode or done.stderr or len(snapshots) != 1:
            return [], tell(done)
        with open(result, encoding="utf-8") as text:
            own = {size: [tuple(frame) for frame in stack] for size, stack in json.load(text)}
        snapshot, found = snapshots[0], []
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                if block["requested_size"] in own:
                    frames = [snapshot["frames"][f] for f in snapshot["stacks"][block["stack"]]]
                    found.append((own.pop(block["requested_size"]), frames))
        return found, "%d allocations have no block" % len(own) if own else ""


def compare(python, depth, **options):
    name = "%s (%s)%s: " % (python.name, python.path, ", Python frames alone" if options else "")
    found, why = own_and_ours(python, depth, **options)
    wrong, whole = [], 0
    for own, frames in found:
        ours = [(f["name"], f["filename"], f["line"]) for f in frames if f["python"]]
        whole += ours == own
        if ours != own and (len(frames) < DEPTH or not ours or ours != own[:len(ours)]):
            wrong.append((own[:5], ours[:5], len(own), len(ours)))
    check(name + "%d stacks are the interpreter's own, %d of them whole" % (len(found), whole),
          not why and not wrong and len(found) > 350 and whole > 340, (why, len(wrong), wrong[:2]))


def by_frames(python):
    library = os.path.join(B, "test/unit/python/pyframes.so")
    with Room() as room:
        done = subprocess.run(python.command("test/unit/python/frames.py", library, room.path),
                              env=dict(os.environ, **python.env), timeout=300, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    said = [line for line in done.stdout.splitlines() if " compared, 0 failed" in line]
    check("%s (%s): %s" % (python.name, python.path, said[0][2:] if said else "frames.py"),
          done.returncode == 0 and len(said) == 1, tell(done))


def main():
    with Room() as room:
        embed = os.path.join(room.path, "embed")
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler or subprocess.run([compiler, "-O1", "-o", embed, os.path.join(HERE, "embed.c"), "-ldl"],
                                          check=False).returncode:
            embed = ""
        roots = [r for r in sorted(glob.glob(os.environ.get("PYTHON_ROOTS", "") + "/*")) if os.path.isdir(r)] \
            if os.environ.get("PYTHON_ROOTS") else []
        more = [python for root in roots for python in of_root(os.path.abspath(root), embed)]
        for python in more:
            check("%s starts" % python.path, python.works)
        more = [python for python in more if python.works]
        pythons = here(not more)
        check("an interpreter is here", pythons or more)
        with_symbols = [copy for copy in (stripped(room, python) for python in (more or pythons)) if copy and copy.works]
        for python in pythons + more + with_symbols[:1 if not more else None]:
            compare(python, 20)
            compare(python, 200, stacks="python")
        for python in more:
            by_frames(python)
    finish()


main()
