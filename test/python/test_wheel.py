# timeout: 300
"""The wheel, as `make wheel` makes it: installed by pip into a new venv without a network, and used there."""
import glob
import os
import re
import subprocess
import sys
import zipfile

sys.path.insert(0, "test")
sys.path.insert(0, "test/python")
from host import HERE, interpreters  # noqa: E402
from tap import B, Room, check, finish, tell  # noqa: E402

PROGRAM = '''
import sys, gpumem, host
assert "site-packages" in gpumem.__file__, gpumem.__file__
with gpumem.annotate("load"):
    host.alloc(12288)
print(gpumem.memory_allocated())
sys.exit(4)
'''


def make():
    made = subprocess.run(["make", "wheel", "BUILD=" + os.path.relpath(B)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    wheels = glob.glob(os.path.join(B, "wheel/*.whl"))
    check("make wheel makes one file", made.returncode == 0 and len(wheels) == 1, (made.stdout[-900:], wheels))
    return wheels[0] if len(wheels) == 1 else None


def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read([name for name in names if name.endswith("/METADATA")][0]).decode()
    check("it has the package, the command, the library and the manual pages", {
        "gpumem/__init__.py", "gpumem/pytest_plugin.py", "gpumem/py.typed", "gpumem/bin/gpumem", "gpumem/lib/libgpumem.so"} <= set(names) and
        any(name.endswith("share/man/man1/gpumem-run.1") for name in names), names)
    check("it is for every Python 3, of a glibc and a processor", re.search(
        r"-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl$", wheel), wheel)
    check("it needs Python 3.8", "Requires-Python: >=3.8" in metadata, metadata)
    check("without the debug information", os.path.getsize(wheel) < 3 << 20, os.path.getsize(wheel))


def used(wheel, python, name):
    with Room() as room:
        venv = os.path.join(room.path, "venv")
        env = room.env(preload=False, PIP_CONFIG_FILE="/dev/null", HOME=room.path, PYTHONPATH="", PIP_DISABLE_PIP_VERSION_CHECK=1)
        told = room.run([python, "-m", "venv", venv], env=env, timeout=200)
        if not check("%s: there is a venv" % name, told.returncode == 0, tell(told)):
            return
        told = room.run([venv + "/bin/python", "-m", "pip", "install", "--no-index", wheel], env=env, timeout=200)
        check("%s: pip installs it without a network" % name, told.returncode == 0, tell(told))
        program = os.path.join(room.path, "train.py")
        with open(program, "w", encoding="utf-8") as script:
            script.write(PROGRAM)
        env.update(PYTHONPATH=HERE, PYTHONDONTWRITEBYTECODE="1", PATH=venv + "/bin:/usr/bin:/bin")
        for number, command in enumerate((["python", "-m", "gpumem"], ["gpumem"])):
            told = room.run(command + ["run", "--output=%s/%d.%%r.json" % (room.out, number), "--",
                                       "python", program], env=env)
            check("%s: %s run: recorded, and the program's exit status" % (name, " ".join(command)), told.returncode == 4 and
                  told.stdout == "12288\n" and "%d.exit.json" % number in room.files(), (tell(told), room.files()))
        told = room.run(["gpumem", "summary", os.path.join(room.out, "1.exit.json")], env=env)
        check("%s: gpumem summary of that" % name, told.returncode == 0 and "host.py:" in told.stdout, tell(told))
        told = room.run(["python", "-m", "pip", "uninstall", "-y", "gpumem"], env=env, timeout=200)
        left = [path for path in glob.glob(venv + "/**/*gpumem*", recursive=True)]
        check("%s: pip takes it away again" % name, told.returncode == 0 and not left, (tell(told), left))


def plugin(wheel):
    """pytest finds the plugin by the wheel's entry point."""
    found = interpreters("import ctypes, pytest")
    if not check("there is a Python with pytest", found):
        return
    with Room() as room:
        site = os.path.join(room.path, "site")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        os.chmod(site + "/gpumem/bin/gpumem", 0o755)        # as pip does
        with open(os.path.join(room.path, "test_it.py"), "w", encoding="utf-8") as file:
            file.write("import host, pytest\n@pytest.mark.limit_gpu_memory('1 KiB')\ndef test_it():\n    host.alloc(5000)\n")
        told = room.run([found[0][0], "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers"],
                        env=room.env(PYTHONPATH=site + ":" + HERE, PYTHONDONTWRITEBYTECODE=1))
        check("pytest finds the plugin by itself", told.returncode == 1 and "held 4.9 KiB of GPU memory" in told.stdout, tell(told))


def main():
    wheel = make()
    if wheel:
        content(wheel)
        plugin(wheel)
        found = interpreters("import ctypes, ensurepip, venv")
        check("there are Pythons that make a venv", found)
        for python, version in sorted(found, key=lambda one: one[1])[:1]:
            used(wheel, python, "Python %d.%d" % version)
    finish()


main()
