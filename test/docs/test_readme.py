"""README.md: short enough to be read, every verb is in it, its picture shows what the program says, and its
examples and answers work as they stand."""
import glob
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, "test")
from tap import B, GPUMEM, LIBRARY, Room, check, finish  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
LAUNCHER = os.path.abspath("test/tools/launcher.py")

MOST_WORDS = 1500
with open("README.md", encoding="utf-8") as text:
    README = text.read()

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
          all(word in shown("docs/summary.svg") for word in ("asked for", "by call site", "remember_loss", "gpumem replay --search")))

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

    blocks = [block.splitlines() for block in re.findall(r"^```\n(.*?)^```$", README.split("## Three examples")[1].split("\n## ")[0], re.M | re.S)]
    check("there are three examples", len(blocks) == 3, blocks)
    for line in blocks[0][:2]:
        done = run(line)
        check("a CUDA program: %s" % line, done.returncode == 0 and (done.stdout or done.stderr), done)
    for line in blocks[1]:
        exported = re.match(r"export (\w+)=(\S+)", line)
        if exported:
            env[exported.group(1)] = exported.group(2)
            continue
        done = run(line)
        check("PyTorch: %s" % line, done.returncode == 0, done)
    check("a file for each rank, and one for the viewer", {"0.exit.json", "3.exit.json", "rank0.pickle"} <= set(room.files()), room.files())
    with subprocess.Popen([TRAINING, "--wait"], env=dict(env, LD_PRELOAD=LIBRARY), cwd=room.out, stdout=subprocess.PIPE, text=True) as killed:
        killed.stdout.readline()
        killed.kill()
    for line in blocks[2]:
        done = run(line.replace("gpumem recover", "gpumem recover " + room.journals))
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
finish()
