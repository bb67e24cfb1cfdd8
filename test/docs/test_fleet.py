"""docs/fleet.md: its commands are run as they stand, as far as a machine without a cluster can; its metrics are those that are written."""
import glob
import json
import os
import re
import shlex
import signal
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, LIBRARY, Room, check, finish  # noqa: E402
from verbs import Program, gpumem, wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
LAUNCHER = os.path.abspath("test/tools/launcher.py")
with open("docs/fleet.md", encoding="utf-8") as text:
    PAGE = text.read()
with open("docs/kubernetes.yaml", encoding="utf-8") as text:
    MANIFEST = text.read()
BLOCKS = [(kind, block) for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)]
LINES = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
LINES += [line.split("=", 1)[1] for kind, block in BLOCKS if kind == "ini" for line in block.splitlines() if line.startswith("ExecStart=")]


def command(*words):
    """The page's one command that has all these words."""
    found = [line for line in LINES if all(word in line for word in words) and not line.startswith("/")]
    if not check("the page has the command with %s" % " ".join(words), len(set(found)) == 1, found):
        return ""
    return found[0]


# ---- what is named is there --------------------------------------------------------------------------------------------
for link in re.findall(r"\]\(#([\w-]+)\)", PAGE):
    check("section %s" % link, re.search(r"^## " + link.replace("-", "[ -]") + "$", PAGE, re.M | re.I))
verbs = set(re.findall(r"^  ([a-z]+) ", gpumem("help").stdout, re.M))
library = {row["name"] for row in json.loads(gpumem("options", "--json").stdout)}
for line in LINES:
    for use in re.findall(r"gpumem ((?:run|top|convert|recover|merge|snapshot|summary|flame)\b[^|;]*)", line):
        words = use.split(" -- ")[0].split()
        options = set(re.findall(r"--([a-z-]+)", gpumem("help", words[0]).stdout)) | (library if words[0] == "run" else set())
        used = {re.match(r"--([a-z-]+)", w).group(1) for w in words[1:] if w.startswith("--")}
        check("gpumem %s: its options are the verb's" % words[0], words[0] in verbs and used <= options, (use, used - options))
for name in set(re.findall(r"GPUMEM_([A-Z_]+)=", PAGE)) | set(re.findall(r"name: GPUMEM_([A-Z_]+)", MANIFEST)):
    check("GPUMEM_%s is a variable" % name, name == "CONF" or name.lower() in library)
for pair in re.findall(r"GPUMEM_CONF=(\S+)", PAGE):
    check("GPUMEM_CONF=%s" % pair, all(entry.split(":")[0] in library for entry in pair.split(",")))
with Room() as room:
    place = os.path.join(room.path, "textfile")
    os.mkdir(place)

    def run(line, wait=True, **env):
        """A line of the page: its paths below our own, its programs our stand-ins."""
        for path in ("/var/lib/node_exporter/textfile",):
            line = line.replace(path, place)
        line = re.sub(r"/(scratch|shared)/", room.out + "/", line).replace("/usr/local/lib/libgpumem.so", LIBRARY)
        line = re.sub(r"^srun |^mpirun -np 8 ", lambda m: "%s %s 4 %s " % (sys.executable, LAUNCHER, "slurm" if "srun" in m.group(0) else "mpi"), line)
        line = re.sub(r"torchrun --nproc-per-node=8 ", "%s %s 4 torch " % (sys.executable, LAUNCHER), line)
        line = line.replace("-x LD_PRELOAD", "env LD_PRELOAD").replace(" -x ", " ")
        line = re.sub(r"python train\.py|(?<= )train\.py|\./solver", "%s --steps 2 --batch 2" % TRAINING, line)
        line = re.sub(r"(?<![\w/.-])gpumem (?=[a-z])", GPUMEM + " ", line)
        full = dict(room.env(preload=False), SLURM_JOB_ID="77", **env)
        if not wait:
            return subprocess.Popen(["sh", "-c", "exec " + line], env=full, stderr=subprocess.PIPE, text=True, cwd=room.path)
        return subprocess.run(["sh", "-c", line], env=full, capture_output=True, text=True, cwd=room.path, timeout=100, check=False)

    # ---- containers that may lack it -----------------------------------------------------------------------------------
    line = command("preload.sh")
    for what, file, said in (("the library is there", LIBRARY, None), ("it is not", room.path + "/absent.so", "nothing is recorded"),
                             ("it is no library", __file__, "nothing is recorded"), ("it is a directory", room.path, "nothing is recorded")):
        ran = subprocess.run(["sh", "-c", re.sub(r"python.*", "sh -c 'echo [$LD_PRELOAD]; exit 3'",
                              line.replace("/usr/local/share/gpumem", os.path.abspath("scripts"))).replace("'echo", "'echo \"$@\"")],
                             env=dict(room.env(preload=False), GPUMEM_LIBRARY=file), capture_output=True, text=True, check=False)
        check("%s: the program runs, %s it" % (what, "without" if said else "with"), ran.returncode == 3 and
              ran.stdout.strip() == ("[]" if said else "[%s]" % LIBRARY) and
              (said in ran.stderr and ran.stderr.count("\n") == 1 if said else not ran.stderr), ran)

    # ---- one watcher a node --------------------------------------------------------------------------------------------
    watcher_line = command("--watch 15", "--textfile /var/lib/node_exporter/textfile all")
    with Program(room, TRAINING, "--wait", RANK=3) as first:
        check("a job runs", first.until("waiting"))
        with run(watcher_line.replace("--watch 15", "--watch 0.2"), wait=False) as watcher:
            mine = os.path.join(place, "gpumem.%d.prom" % first.pid)
            check("the watcher finds it", wait_for(lambda: os.path.exists(mine)), os.listdir(place))
            with open(mine, encoding="utf-8") as text:
                written = text.read()
            with Room() as other, Program(other, TRAINING, "--wait") as late:
                check("and one that comes", wait_for(lambda: os.path.exists(os.path.join(place, "gpumem.%d.prom" % late.pid))), os.listdir(place))
                late.kill()
                check("and takes its file away when it has ended", wait_for(lambda: not os.path.exists(os.path.join(
                    place, "gpumem.%d.prom" % late.pid))) and watcher.poll() is None, os.listdir(place))
            check("nobody was disturbed", first.child.poll() is None)
            watcher.send_signal(signal.SIGTERM)
            check("ended, it leaves nothing behind", watcher.wait(timeout=60) == 0 and not os.listdir(place), os.listdir(place))
        once = subprocess.run([GPUMEM, "convert", "--to", "prometheus", "--textfile", place, "all"], capture_output=True, text=True, check=False)
        check("once, without --watch", once.returncode == 0 and os.path.exists(mine), (once, os.listdir(place)))
        check("gpumem top --json --once all", any(p["pid"] == first.pid and p["rank"] == 3 for p in json.loads(
            run(command("top --json")).stdout)["processes"]))
        asked = [run(line.replace("4711", str(first.pid))) for line in LINES if "gpumem ctl 4711" in line]
        check("ctl: each is answered", len(asked) == 5 and all("history: " in s.stdout for s in asked if s.returncode == 0) and
              [s.returncode for s in asked].count(0) >= 4, asked)
        shot = [run(line.replace("4711", str(first.pid))) for line in LINES if re.search(r"4711|now\.(json|svg)", line) and "gpumem ctl" not in line]
        check("snapshot, summary, flame", len(shot) == 3 and all(s.returncode == 0 for s in shot) and
              os.path.exists(os.path.join(room.path, "now.svg")), shot)
    names = set(re.findall(r"^(gpumem_\w+)\{", written, re.M))
    listed = set(re.findall(r"`(gpumem_\w+)`", PAGE.split("## What a node shows")[1].split("\n## ")[0]))
    check("the metrics of the table are those that are written", names == listed, (names ^ listed))
    check("the alerts use no others", set(re.findall(r"\bgpumem_\w+", PAGE.split("```promql")[1].split("```")[0])) <= names)
    check("the labels, too", re.search(r'^gpumem_allocated_bytes\{command="app_training",pid="%d",rank="3",device="0"\} \d+$' % first.pid, written, re.M), written)

    # ---- launchers -----------------------------------------------------------------------------------------------------
    for name, words, directory in (("Slurm", ("srun gpumem run",), "77"), ("torchrun", ("torchrun --nproc",), "run7"),
                                   ("MPI", ("mpirun -np 8 gpumem run",), "run7"), ("MPI, preloaded", ("mpirun -np 8 -x",), "run7")):
        os.makedirs(os.path.join(room.out, directory), exist_ok=True)
        done = run(command(*words), HOSTNAME="node")
        files = sorted(glob.glob(os.path.join(room.out, directory, "*.exit.json")))
        check("%s: a snapshot of each rank" % name, done.returncode == 0 and len(files) == 4 and
              sorted(json.load(open(f, encoding="utf-8"))["process"]["rank"] for f in files) == [0, 1, 2, 3], (done, files))
        merge = [line for line in LINES if line.startswith("gpumem merge") and directory in line.replace("$SLURM_JOB_ID", "77")]
        done = run(merge[0])
        check("%s: merged" % name, done.returncode == 0 and re.search(r"rank +0 .*rank +3 ", done.stdout), done)
        for path in files:
            os.unlink(path)

    # ---- every job of a cluster ----------------------------------------------------------------------------------------
    prolog = [line for line in LINES if line.startswith("echo export ")]
    exports = dict(run(line).stdout.strip()[len("export "):].split("=", 1) for line in prolog)
    check("the TaskProlog's lines are what Slurm reads", sorted(exports) == ["GPUMEM_CONF", "GPUMEM_JOURNAL", "GPUMEM_OUTPUT", "LD_PRELOAD"], exports)
    os.makedirs(os.path.join(room.out, "gpumem"))
    exports["GPUMEM_JOURNAL"] = room.journals             # not the machine's own
    env = dict(room.env(preload=False), SLURM_PROCID="2", **exports)
    good = subprocess.run([TRAINING, "--steps", "2"], env=env, capture_output=True, text=True, check=False)
    check("a job that ends well writes nothing", good.returncode == 0 and not good.stderr and not os.listdir(room.out + "/gpumem"), (good, room.files()))
    bad = subprocess.run([TRAINING, "--steps", "2", "--oom"], env=env, capture_output=True, text=True, check=False)
    check("one that runs out of memory writes why", bad.returncode == 1 and os.listdir(room.out + "/gpumem") == ["77.2.oom-1.json"], os.listdir(room.out + "/gpumem"))
    with subprocess.Popen([TRAINING, "--wait"], env=env, stdout=subprocess.PIPE, text=True) as task:
        task.stdout.readline()
        task.kill()
    epilog = command("gpumem recover -o", "$SLURM_JOB_ID").replace("/dev/shm", room.journals)
    done = run(epilog)
    check("the Epilog finds what a killed task left", done.returncode == 0 and os.path.exists(
        "%s/gpumem/77.2.%d.recovered.json" % (room.out, task.pid)) and not room.journal_files(), (done, os.listdir(room.out + "/gpumem")))

    # ---- a pod that starts again ---------------------------------------------------------------------------------------
    volume = os.path.join(room.path, "volume")
    os.mkdir(volume)
    env = dict(room.env(preload=False), LD_PRELOAD=LIBRARY, GPUMEM_JOURNAL=volume, GPUMEM_OUTPUT=volume + "/%c.%p.%r.json")
    with subprocess.Popen([TRAINING, "--wait"], env=env, stdout=subprocess.PIPE, text=True) as container:
        container.stdout.readline()
        container.kill()
    line = re.findall(r'command: \[sh, -c, "(gpumem recover .*?)"\]', MANIFEST)
    done = run(line[0].replace("/gpumem", volume).replace(volume + ".%", "/gpumem.%"))
    check("the init container makes the snapshot of the last life", done.returncode == 0 and
          os.path.exists("%s/app_training.%d.recovered.json" % (volume, container.pid)), (done, os.listdir(volume)))
finish()
