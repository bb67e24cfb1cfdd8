"""README.md: short enough to be read, every verb is in it, its picture shows what the program says, and every line
of its blocks, its examples and its answers work as they stand."""
import glob
import gzip
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, "test")
sys.path.insert(0, "test/docs")
sys.path.insert(0, "test/tools")
from blocks import Blocks  # noqa: E402
from tap import B, GPUMEM, LIBRARY, Room, check, finish  # noqa: E402
from verbs import wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
LAUNCHER = os.path.abspath("test/tools/launcher.py")

MOST_WORDS = 1500
BLOCKS = Blocks("README.md")
README = BLOCKS.text
# A program in Python that runs out of memory because half of it lies idle between what is held.
TRAIN = """import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
def ask(size):
    block = ctypes.c_uint64()
    return None if cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size << 20)) else block
def build():
    return [ask(1) for _ in range(900)]
def step():
    return ask(400)
blocks = build()
for block in blocks[::2]:
    cuda.cuMemFree_v2(block)
assert not step()
"""

check("the README has at most %d words" % MOST_WORDS, len(README.split()) <= MOST_WORDS, len(README.split()))
usage = subprocess.run([GPUMEM, "help"], capture_output=True, text=True, check=True).stdout
for verb in re.findall(r"^  ([a-z]+) ", usage, re.MULTILINE):
    check("the README shows the verb %s (its table of questions is the place)" % verb, re.search(r"gpumem %s\b" % verb, README))
    done = subprocess.run([GPUMEM, "help", verb], capture_output=True, text=True, check=False)
    check("gpumem help %s" % verb, done.returncode == 0 and done.stdout.startswith("usage: gpumem " + verb), done.stdout)


def shown(path):
    """The text of a picture, without what differs from run to run: process, machine, time, figures."""
    with open(path, encoding="utf-8") as picture:
        lines = re.findall(r"<text [^>]*>([^<]*)</text>", picture.read())
    words = re.sub(r"\d+(\.\d+)?", "0", " ".join(lines))
    return re.sub(r"\bon \S+\)", "on HOST)", re.sub(r" +", " ", words))


with tempfile.TemporaryDirectory() as place:
    now = os.path.join(place, "summary.svg")
    done = subprocess.run(["scripts/picture.py", now], capture_output=True, text=True, check=False)
    check("scripts/picture.py draws the picture", done.returncode == 0 and os.path.exists(now), done.stderr[-500:])
    check("docs/summary.svg is what the program says today (scripts/pages.sh picture draws it)",
          os.path.exists(now) and shown("docs/summary.svg") == shown(now), (shown("docs/summary.svg"), os.path.exists(now) and shown(now)))
    check("it shows who asked, who holds the memory, and what to change",
          all(word in shown("docs/summary.svg") for word in ("asked for", "by call site", "remember_loss", "grows without end", "gpumem leaks")))

# ---- the table of a training on an H200: its snapshot is kept ---------------------------------------------------------------
with tempfile.TemporaryDirectory() as place:
    kept = os.path.join(place, "exit.json")
    with gzip.open("test/data/gpumem-training.json.gz") as packed, open(kept, "wb") as plain:
        plain.write(packed.read())
    words = BLOCKS.one("gpumem summary gpumem.python3.4723").split()
    says = subprocess.run([GPUMEM, words[1], kept], capture_output=True, text=True, check=True).stdout.replace("(/tmp/r/", "(").splitlines()
    table = [line for line in README.split(words[2] + "\n", 1)[1].split("```")[0].splitlines() if line and line != "..."]
    check("the README's table is what gpumem summary says of that training", len(table) == 10 and
          [line for line in says if line in table] == table, [line for line in table if line not in says])

# ---- examples and answers, with a program and a launcher of the tests' -----------------------------------------------------
with Room() as room:
    env = dict(room.env(preload=False), GPUMEM_JOURNAL=room.journals)

    def run(line):
        line = re.sub(r"(?<![\w./])gpumem (?=[a-z])", GPUMEM + " ", line).replace("./app", TRAINING + " --steps 3 --leak")
        line = line.replace("torchrun --nproc-per-node=8 train.py", "%s %s 4 torch %s --steps 2" % (sys.executable, LAUNCHER, TRAINING))
        for name in re.findall(r"gpumem\.app\.4711\.([\w-]+)\.json", line):
            for path in glob.glob(os.path.join(room.out, "gpumem.app_training.*.%s.json" % name)):
                line = line.replace("gpumem.app.4711.%s.json" % name, path)
        return subprocess.run(["sh", "-c", line], cwd=room.out, env=env, capture_output=True, text=True, timeout=100, check=False)

    # ---- the answer at the top ---------------------------------------------------------------------------------------------
    with open(os.path.join(room.out, "train.py"), "w", encoding="utf-8") as script:
        script.write(TRAIN)
    env.update(FAKECUDA_CAPACITY="1GiB")        # the page's run had PyTorch's own cache
    done = run(BLOCKS.one("gpumem run -- python3 train.py"))
    del env["FAKECUDA_CAPACITY"]
    found = glob.glob(os.path.join(room.out, "gpumem.python3.*.oom-1.json"))
    if check("a script that runs out of memory, unchanged: %d snapshot" % len(found), done.returncode == 0 and len(found) == 1, (done, room.files())):
        done = run(BLOCKS.one("gpumem summary gpumem.python3.702").replace("gpumem.python3.702.oom-3.json", found[0]))
        shown = next(block for _, block in BLOCKS.blocks if "$ gpumem summary gpumem.python3.702" in block)
        said = ["why memory ran out", r"\(train\.py:\d+\) asked for \S+ \S+ on device 0, where \S+ \S+ were free: \S+ \S+ too little, while",
                r"lay idle in the cache in pieces that are too small \(the largest: \S+ \S+\): fragmentation\."]
        missing = [part for part in said for where in (shown, done.stdout) if not re.search(part.replace(" ", r"\s+"), where)]
        check("and what is shown of it is printed, but for what is of PyTorch's pool (test_summary_pool.py)", done.returncode == 0 and not missing, (missing, done))
        for path in glob.glob(os.path.join(room.out, "gpumem.python3.*")):
            os.unlink(path)

    # ---- three examples ----------------------------------------------------------------------------------------------------
    for line in (BLOCKS.one("gpumem run -- ./app"), BLOCKS.one("gpumem summary gpumem.app")):
        done = run(line)
        check("a CUDA program: %s" % line, done.returncode == 0 and (done.stdout or done.stderr), done)
    inline = re.search(r"`(LD_PRELOAD=\S+ \./app)`", README).group(1).replace("/usr/local/lib/libgpumem.so", LIBRARY)
    before = room.files()
    check(inline, run(inline).returncode == 0 and len(room.files()) == len(before) + 1, room.files())
    os.unlink(os.path.join(room.out, (set(room.files()) - set(before)).pop()))
    with subprocess.Popen([TRAINING, "--wait"], env=dict(env, LD_PRELOAD=LIBRARY), cwd=room.out, stdout=subprocess.PIPE, text=True) as living:
        living.stdout.readline()
        line = BLOCKS.one("kill -USR1 4711")
        done = run(line.replace("4711", str(living.pid)))
        shot = wait_for(lambda: glob.glob(os.path.join(room.out, "gpumem.app_training.%d.signal-1.json" % living.pid)))
        check("a CUDA program: %s" % line, done.returncode == 0 and shot and living.poll() is None, (done, room.files()))
        living.kill()
    for line in BLOCKS.all("torchrun") + BLOCKS.all("gpumem merge") + BLOCKS.all("gpumem convert"):
        done = run(line)
        check("PyTorch: %s" % line, done.returncode == 0, done)
    check("a file for each rank, and one for the viewer", {"0.exit.json", "3.exit.json", "rank0.pickle"} <= set(room.files()), room.files())
    with subprocess.Popen([TRAINING, "--wait"], env=dict(env, LD_PRELOAD=LIBRARY), cwd=room.out, stdout=subprocess.PIPE, text=True) as killed:
        killed.stdout.readline()
        killed.kill()
    for line in BLOCKS.all("gpumem recover") + BLOCKS.all("gpumem events"):
        done = run(line.replace("4711", str(killed.pid)).replace("gpumem.app.", "gpumem.app_training."))
        check("after a crash: %s" % line, done.returncode == 0 and done.stdout, done)
    with subprocess.Popen([TRAINING, "--oom", "--wait"], env=dict(env, LD_PRELOAD=LIBRARY), cwd=room.out, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as living:
        try:
            living.stdout.readline()
            snapshot = glob.glob(os.path.join(room.out, "gpumem.*.exit.json"))[0]
            for question, commands in re.findall(r"^\| ([a-z][^|]*) \| (.*`.*`.*) \|$", README.split("## What people ask")[1].split("\n## ")[0], re.M):
                for command in re.findall(r"`([^`]*)`", commands):
                    line = re.sub(r"\b(FILE|YESTERDAY|TODAY)\b(?!\.)", snapshot, command).replace("PID", str(living.pid))
                    line = re.sub(r"top (?=\d|all)", "top --once ", line)
                    if line.startswith("gpumem serve"):         # it goes on until it is told to end
                        with subprocess.Popen([GPUMEM, "serve", "--prometheus", "127.0.0.1:0"], env=env, stdout=subprocess.PIPE, text=True) as server:
                            try:
                                where = re.search(r"http://\S+", server.stdout.readline())
                                with urllib.request.urlopen(where.group(), timeout=20) as answer:
                                    metrics = answer.read().decode()
                            finally:
                                server.terminate()
                        check("%s: %s" % (question, command), 'pid="%d"' % living.pid in metrics, metrics[:400])
                        continue
                    done = run(line)
                    expected = (0, 1) if " check " in line else (0,)
                    check("%s: %s" % (question, command), done.returncode in expected and (done.stdout + done.stderr or " -o " in line), done)
        finally:        # or leaving the block would wait for it
            living.kill()

# ---- installation -------------------------------------------------------------------------------------------------------
for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
    os.environ.pop(name, None)
with tempfile.TemporaryDirectory() as place:
    line = BLOCKS.one("make install")
    done = subprocess.run(["sh", "-c", line.split("#")[0] + " DESTDIR=%s BUILD=%s" % (place, os.path.relpath(B))], capture_output=True, text=True, check=False)
    there = {os.path.relpath(os.path.join(at, name), place) for at, _, names in os.walk(place) for name in names}
    check(line, done.returncode == 0 and {"usr/local/lib/libgpumem.so", "usr/local/bin/gpumem", "usr/local/include/gpumem.h",
                                          "usr/local/share/man/man1/gpumem.1"} <= there, (done, there))
line = BLOCKS.one("make demo")
done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=300, check=False)
check(line, done.returncode == 0 and "by call site" in done.stdout, (done.returncode, done.stdout[-600:], done.stderr[-600:]))
check("%s: with source lines" % line, "take_memory (demo_app.cu:" in done.stdout, done.stdout[:3000])
check("%s: the page is there" % line, os.path.getsize(os.path.join(os.path.relpath(B), "demo", "demo.html")) > 50000)
with open("Makefile", encoding="utf-8") as text:
    makefile = text.read()
for line, said in ((BLOCKS.one("make dist "), r"^check-packages:.* dist\b"), (BLOCKS.one("make check "), r"^check:\n.*\n.*check-only\b")):
    check("%s: by that this test is run, or the packages' is" % line.split("#")[0].strip(), re.search(said, makefile, re.M))
check("every line of every block is tried", len(BLOCKS.lines()) > 10 and not BLOCKS.rest(), BLOCKS.rest())
finish()
