"""test/fakecuda/README.md: its program is built and run by its own commands, and does what the page says."""
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish  # noqa: E402

with open("test/fakecuda/README.md", encoding="utf-8") as text:
    PAGE = text.read()
with open("test/fakecuda/fakecuda.h", encoding="utf-8") as text:
    HEADER = text.read()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
PROGRAM, = [block for kind, block in BLOCKS if kind == "cuda"]
MAKE, COMMANDS = [block for kind, block in BLOCKS if kind == "sh"]
SHOWN = [block for kind, block in BLOCKS if not kind]
ANY = r"(?:0x[0-9a-f]+|\d+)"


def same(line, said):
    """Is @line in @said, but for addresses, numbers of processes and values?"""
    return re.search("^" + re.sub(r"0x[0-9a-f]+|\d+", lambda _: ANY, re.escape(line)) + "$", said, re.M)


check("what the page has made is built", all(os.path.exists(os.path.join(B, path.split("build/", 1)[1])) for path in MAKE.split()[1:]), MAKE)
check("its variables are those of fakecuda.h", set(re.findall(r"FAKECUDA_[A-Z_]+(?==)", PAGE)) <= set(re.findall(r"^ \*   (FAKECUDA_[A-Z_]+) ", HEADER, re.M)))
with Room() as room:
    with open(os.path.join(room.path, "app.cu"), "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    os.symlink(os.path.abspath(B), os.path.join(room.path, "build"))
    nvcc = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    env = {"PATH": os.environ["PATH"] + ":" + nvcc, "HOME": room.path}
    build, _export, *runs = COMMANDS.splitlines()
    done = subprocess.run(["sh", "-c", build], cwd=room.path, env=env, capture_output=True, text=True, check=False)
    check("the page's line builds its program", done.returncode == 0, done.stdout + done.stderr)
    env["LD_LIBRARY_PATH"] = os.path.abspath(os.path.join(B, "fakecuda"))
    race, hang, fail = [subprocess.run(["sh", "-c", "exec env " + run], cwd=room.path, env=env, capture_output=True, text=True, timeout=60, check=False)
                        for run in runs]
    for what, status, text, run in (("race", 66, SHOWN[0], race), ("hang", 67, SHOWN[1], hang)):
        check("the %s: status %d" % (what, status), run.returncode == status and "status %d" % status in PAGE, run)
        check("the %s: said as the page shows it" % what, all(same(line, run.stderr) for line in text.splitlines()), (text, run.stderr))
    check("the call that fails: the program says so", fail.returncode == 1 and fail.stdout == "no memory\n", fail)
finish()
