"""docs/fleet.md: every line of its blocks is run as it stands, as far as a machine without a cluster can, here or where the end of this
file says; its metrics are those that are written."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/docs")
from blocks import Blocks  # noqa: E402
from tap import B, GPUMEM, LIBRARY, Room, check, finish  # noqa: E402
from verbs import Program, gpumem, wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
LAUNCHER = os.path.abspath("test/tools/launcher.py")
BLOCKS = Blocks("docs/fleet.md")
PAGE = BLOCKS.text
with open("docs/kubernetes.yaml", encoding="utf-8") as text:
    MANIFEST = text.read()
UNIT = re.search(r"^ExecStart=(.*)$", BLOCKS.block("ini"), re.M).group(1)
LINES = BLOCKS.lines() + [UNIT]


# ---- what is named is there --------------------------------------------------------------------------------------------
for link in re.findall(r"\]\(#([\w-]+)\)", PAGE):
    check("section %s" % link, re.search(r"^## " + link.replace("-", "[ -]") + "$", PAGE, re.M | re.I))
verbs = set(re.findall(r"^  ([a-z]+) ", gpumem("help").stdout, re.M))
library = {row["name"] for row in json.loads(gpumem("options", "--json").stdout)}
for line in LINES:
    for use in re.findall(r"gpumem ((?:%s)\b[^|;#]*)" % "|".join(verbs), line):
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
        line = re.sub(r"(?:^|(?<=-- ))(?:srun |mpirun -np 8 )", lambda m: "%s %s 4 %s " % (sys.executable, LAUNCHER, "slurm" if "srun" in m.group(0) else "mpi"), line)
        line = re.sub(r"torchrun --nproc-per-node=8 ", "%s %s 4 torch " % (sys.executable, LAUNCHER), line)
        line = line.replace("-x LD_PRELOAD", "env LD_PRELOAD").replace(" -x ", " ")
        line = re.sub(r"python train\.py|(?<= )train\.py|\./solver", "%s --steps 2 --batch 2" % TRAINING, line)
        line = re.sub(r"(?<![\w/.-])gpumem (?=[a-z])", GPUMEM + " ", line)
        full = dict(room.env(preload=False), SLURM_JOB_ID="77", **env)
        if not wait:
            return subprocess.Popen(["sh", "-c", "exec " + line], env=full, stderr=subprocess.PIPE, text=True, cwd=room.path)
        return subprocess.run(["sh", "-c", line], env=full, capture_output=True, text=True, cwd=room.path, timeout=100, check=False)

    # ---- containers that may lack it -----------------------------------------------------------------------------------
    line = BLOCKS.one("preload.sh")
    for what, file, said in (("the library is there", LIBRARY, None), ("it is not", room.path + "/absent.so", "nothing is recorded"),
                             ("it is no library", __file__, "nothing is recorded"), ("it is a directory", room.path, "nothing is recorded")):
        ran = subprocess.run(["sh", "-c", re.sub(r"python.*", "sh -c 'echo [$LD_PRELOAD]; exit 3'",
                              line.replace("/usr/local/share/gpumem", os.path.abspath("scripts"))).replace("'echo", "'echo \"$@\"")],
                             env=dict(room.env(preload=False), GPUMEM_LIBRARY=file), capture_output=True, text=True, check=False)
        check("%s: the program runs, %s it" % (what, "without" if said else "with"), ran.returncode == 3 and
              ran.stdout.strip() == ("[]" if said else "[%s]" % LIBRARY) and
              (said in ran.stderr and ran.stderr.count("\n") == 1 if said else not ran.stderr), ran)

    # ---- one watcher a node --------------------------------------------------------------------------------------------
    watcher_line = BLOCKS.one("--watch 15", "--textfile /var/lib/node_exporter/textfile all")
    check("the systemd unit runs the same", UNIT.replace("/usr/local/bin/", "") == watcher_line, UNIT)
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
            run(BLOCKS.one("top --json")).stdout)["processes"]))
        with subprocess.Popen(["sh", "-c", "exec " + BLOCKS.one("gpumem top all").replace("gpumem", GPUMEM)], stdout=subprocess.PIPE, text=True) as top:
            check("gpumem top all", first.pid in (int(word) for line in iter(top.stdout.readline, "") for word in line.split() if word.isdigit()))
            top.terminate()
        with subprocess.Popen(["sh", "-c", "exec " + BLOCKS.one("serve --prometheus").replace("gpumem", GPUMEM).replace(":9847", ":0")],
                              stdout=subprocess.PIPE, text=True) as server:
            with urllib.request.urlopen(server.stdout.readline().strip(), timeout=60) as answer:
                check("gpumem serve", 'pid="%d"' % first.pid in answer.read().decode())
            server.terminate()
        with Program(room, TRAINING, "--wait") as second:
            check("a second job runs", second.until("waiting"))
            asked = [(line, run(line.replace("4711", str(first.pid)).replace("4712", str(second.pid)))) for line in BLOCKS.all("gpumem ctl 4711")]
        for line, done in asked:
            check(line.split("#")[0].strip(), done.returncode == 0 and "history: " in done.stdout and
                  ("memory-limit" not in line or "limit 40.00 GiB (was none)" in done.stdout) and
                  ("4712" not in line or done.stdout.count("history: ") == 2), done)
        shot = [run(BLOCKS.one("gpumem " + verb).replace("4711", str(first.pid))) for verb in ("snapshot", "summary", "flame")]
        check("snapshot, summary, flame", len(shot) == 3 and all(s.returncode == 0 for s in shot) and
              os.path.exists(os.path.join(room.path, "now.svg")), shot)
    names = set(re.findall(r"^(gpumem_\w+)\{", written, re.M))
    listed = set(re.findall(r"`(gpumem_\w+)`", PAGE.split("## What a node shows")[1].split("\n## ")[0]))
    check("the metrics of the table are those that are written", names == listed, (names ^ listed))
    check("the alerts use no others", set(re.findall(r"\bgpumem_\w+", PAGE.split("```promql")[1].split("```")[0])) <= names)
    check("the labels, too", re.search(r'^gpumem_allocated_bytes\{command="app_training",pid="%d",rank="3",device="0"\} \d+$' % first.pid, written, re.M), written)

    # ---- launchers -----------------------------------------------------------------------------------------------------
    for name, words, directory in (("Slurm", ("srun gpumem run",), "77"), ("torchrun", ("torchrun --nproc",), "run7"),
                                   ("MPI", ("mpirun -np 8 gpumem run",), "run7"), ("MPI, one parent", ("-- mpirun -np 8",), "run7"),
                                   ("MPI, preloaded", ("mpirun -np 8 -x",), "run7")):
        os.makedirs(os.path.join(room.out, directory), exist_ok=True)
        done = run(BLOCKS.one(*words), HOSTNAME="node")
        files = sorted(glob.glob(os.path.join(room.out, directory, "*.exit.json")))
        check("%s: a snapshot of each rank" % name, done.returncode == 0 and len(files) == 4 and
              sorted(json.load(open(f, encoding="utf-8"))["process"]["rank"] for f in files) == [0, 1, 2, 3], (done, files))
        done = run(BLOCKS.all("gpumem merge", "$SLURM_JOB_ID" if directory == "77" else directory)[0])
        check("%s: merged" % name, done.returncode == 0 and re.search(r"rank +0 .*rank +3 ", done.stdout), done)
        for path in files:
            os.unlink(path)

    # ---- every job of a cluster ----------------------------------------------------------------------------------------
    prolog = BLOCKS.all("echo export ")
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
    epilog = BLOCKS.one("gpumem recover -o", "$SLURM_JOB_ID").replace("/dev/shm", room.journals)
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
# ---- what is tried elsewhere, by tools that the check has not; and nothing else is ---------------------------------------------
for test, call, words in (("test/fleet/test_prometheus.py", "block", ["yaml"]), ("test/fleet/test_prometheus.py", "block", ["promql"]),
                          ("test/fleet/test_prometheus.py", "block", ["ini"]), ("test/packages/test_packages.py", "one", ["docker build"]),
                          ("test/packages/test_packages.py", "one", ["kubectl apply"])):
    check("%s tries what is %s" % (test, " ".join(words)), BLOCKS.left_to(test, call, *words))
check("every line of every block is tried", len(BLOCKS.lines()) > 25 and not BLOCKS.rest(), BLOCKS.rest())
finish()
