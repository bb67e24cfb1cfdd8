# timeout: 400
"""Host programs with unusual habits run under the library as they run without it."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, "test")
from tap import B, FAKE, GPUMEM, LIBRARY, Room, check, finish, live_bytes, same, tell  # noqa: E402

HOST = os.path.join(B, "test/preload/host")
NO_CUDA = [
    ("sh", ["sh", "-c", "echo hello; exit 3"]),
    ("ls", ["ls", "/"]),
    ("gcc", ["gcc", "-dumpversion"]),
    ("gcc compiling", ["sh", "-c", "echo 'int main(void){return 0;}' | gcc -x c -c - -o /dev/null"]),
    ("python3", ["python3", "-c", "pass"]),
    ("python3 threads", ["python3", "-c", "import os; print(len(os.listdir('/proc/self/task')))"]),
    ("python3 descriptors", ["python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"]),
    ("sh pipeline", ["sh", "-c", "printf 'b\\na\\n' | sort | tr a-z A-Z; false"]),
]


def without_cuda():
    for name, command in NO_CUDA:
        with Room() as room:
            shm = set(os.listdir("/dev/shm"))
            bare = room.run(command, preload=False, fake=False)
            ours = room.run(command, fake=False)
            new = [f for f in set(os.listdir("/dev/shm")) - shm if f.startswith("gpumem") and
                   not f.startswith(("gpumem-run-", "gpumem-test-"))]       # those are of tests beside this one
            check("no CUDA: %s behaves as without" % name, same(bare, ours), tell(bare, ours))
            check("no CUDA: %s leaves no file" % name, not room.files() and not room.journal_files() and not new,
                  (room.files(), room.journal_files(), new))


def compare(name, args, want_snapshot="exit", journal_left=False, live=None, **options):
    """The mode prints and exits as without the library; and what it left is what it should be."""
    with Room() as room:
        for path in (room.path, room.out):
            os.chmod(path, 0o777)       # one of them changes its user
        bare = room.run([HOST] + args, preload=False, **{k: v for k, v in options.items() if k.isupper()})
        ours = room.run([HOST] + args, **options)
        if not check("%s: same output and status" % name, same(bare, ours), tell(bare, ours)):
            return
        check("%s: the program did what the test is about" % name, "errors" in ours.stdout and "begin" not in ours.stdout,
              tell(ours))
        snapshots = room.snapshots(want_snapshot) if want_snapshot else []
        if want_snapshot:
            if check("%s: one snapshot for %s" % (name, want_snapshot), len(snapshots) == 1, room.files()) and live:
                bytes_ = live_bytes(snapshots[0])
                check("%s: it shows %d bytes live" % (name, live), bytes_ == live, bytes_)
        else:
            check("%s: no snapshot" % name, not room.files(), room.files())
        check("%s: %s journal" % (name, "leaves a" if journal_left else "leaves no"),
              bool(room.journal_files()) == journal_left, room.journal_files())


def habits():
    mib = 1 << 20
    compare("basic", ["basic"], live=4 * mib)
    compare("closes every descriptor", ["closefds"], live=6 * mib)
    compare("raw clone", ["clone"], live=4 * mib)
    compare("vfork", ["vfork"], live=4 * mib)
    compare("fork", ["fork"], live=4 * mib)
    # Its journal lies in a directory that the new user may not touch: it stays, marked as ended.
    compare("setuid in a threaded program", ["setuid"], live=4 * mib, journal_left=True)
    compare("pthread_cancel", ["cancel"], live=4 * mib)
    compare("own SIGUSR1 handler", ["handler"], live=4 * mib)
    # The fake device's memory would be locked too: a small one.
    compare("mlockall(MCL_FUTURE)", ["mlockall"], live=2 * mib, FAKECUDA_CAPACITY=64 << 20)
    compare("_exit", ["_exit"], live=2 * mib)
    compare("quick_exit", ["quick_exit"], live=2 * mib)
    compare("abort", ["abort"], want_snapshot="crash", live=2 * mib)


def limited_file_size():
    with Room() as room:
        bare = room.run([HOST, "fsize"], preload=False)
        ours = room.run([HOST, "fsize"])
        check("RLIMIT_FSIZE of 4 KiB: the program is not killed", (bare.returncode, bare.stdout) ==
              (ours.returncode, ours.stdout), tell(bare, ours))
        check("RLIMIT_FSIZE of 4 KiB: at most one line says so", ours.stderr.count("\n") <= 2, ours.stderr)


def in_namespace(script, room, timeout=60, **options):
    """Run a shell script as root of a mount and pid namespace of its own; None when there is none."""
    flags = ["-m", "-p", "-f", "--mount-proc"]
    if os.getuid() != 0:
        flags = ["-U", "-r"] + flags
    return room.run(["unshare"] + flags + ["sh", "-c", script], timeout=timeout, env=room.env(preload=False, **options))


def preloaded(room, command, **options):
    """A shell word list that runs @command under the library inside a namespace script."""
    names = " ".join("%s='%s'" % (k, v) for k, v in room.env(**options).items()
                     if k.startswith(("GPUMEM_", "LD_", "FAKECUDA_")))
    return "env %s %s" % (names, command)


def small_shm():
    with Room() as room:
        shm = "mount -t tmpfs -o size=64m tmpfs /dev/shm && "
        automatic = preloaded(room, HOST + " basic").replace("GPUMEM_JOURNAL='%s'" % room.journals, "")
        done = in_namespace(shm + automatic + "; s=$?; df -k /dev/shm | tail -n 1; exit $s", room)
        check("a 64 MiB /dev/shm: the program runs", done.returncode == 0 and "0 errors" in done.stdout, tell(done))
        check("a 64 MiB /dev/shm: it is recorded", len(room.snapshots("exit")) == 1, room.files())
    with Room() as room:
        automatic = preloaded(room, HOST + " sleep 700").replace("GPUMEM_JOURNAL='%s'" % room.journals, "")
        done = in_namespace(shm + "(" + automatic + " &) ; sleep 0.4; du -k /dev/shm | tail -n 1; sleep 1", room)
        used = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("/dev/shm")]
        check("a 64 MiB /dev/shm: at most an eighth of it is taken", used and 0 < int(used[0]) <= 8 * 1024 + 64,
              tell(done))
    with Room() as room:
        full = "mount -t tmpfs -o size=64k tmpfs /dev/shm && { head -c 1m /dev/zero >/dev/shm/full 2>/dev/null; true; } && "
        automatic = preloaded(room, HOST + " basic").replace("GPUMEM_JOURNAL='%s'" % room.journals, "")
        done = in_namespace(full + automatic, room)
        check("a full /dev/shm: the program runs", done.returncode == 0 and "0 errors" in done.stdout, tell(done))
        check("a full /dev/shm: recorded elsewhere, or one line says why not",
              len(room.snapshots("exit")) == 1 or done.stderr.count("gpumem") == 1, tell(done))


def same_pid():
    with Room() as room:
        command = preloaded(room, HOST + " sleep 1500")
        inside = "unshare -p -f --mount-proc sh -c \"%s & wait\"" % command
        done = in_namespace("(%s) & (%s) & sleep 1; ls -R %s; wait" % (inside, inside, room.journals), room)
        journals = [n for n in done.stdout.split() if n.endswith(".journal")]
        pids = [n.split(".")[1] for n in journals]
        check("same pid in two namespaces: two journals", len(journals) == 2 and len(set(journals)) == 2, tell(done))
        check("same pid in two namespaces: it really is the same pid", len(set(pids)) == 1 and len(pids) == 2, pids)
        check("same pid in two namespaces: two snapshots", len(room.snapshots("exit")) == 2, room.files())


def hostile_places():
    with Room() as room:
        os.chmod(room.journals, 0o500)
        done = room.run([HOST, "basic"], journal="/proc/nowhere")
        check("unwritable journal directory: the program runs", done.returncode == 0 and "0 errors" in done.stdout, tell(done))
        check("unwritable journal directory: one clear line, or recorded elsewhere",
              done.stderr.count("gpumem: ") <= 1 and (done.stderr or room.snapshots("exit")), tell(done))
    with Room() as room:
        done = room.run([HOST, "basic"], fake=False)
        bare = room.run([HOST, "basic"], preload=False, fake=False)
        check("missing driver: as without the library", same(done, bare) and "no driver" in done.stdout, tell(bare, done))
        check("missing driver: no file", not room.files() and not room.journal_files(), room.files())
    with Room() as room:
        done = room.run(["sh", "-c", "exec %s basic >&- 2>&-" % HOST])
        bare = room.run(["sh", "-c", "exec %s basic >&- 2>&-" % HOST], preload=False)
        check("closed stdout and stderr: same status", done.returncode == bare.returncode, tell(bare, done))
    with Room() as room:
        opened = os.path.join(room.path, "data")
        script = "exec 2>&-; exec %s basic 2>&- >%s" % (HOST, opened)
        room.run(["sh", "-c", script], no_such_option="1", history="nonsense")
        with open(opened, encoding="utf-8") as text:
            content = text.read()
        check("closed stderr: our lines go nowhere, never into the program's files", "gpumem" not in content, content)


def static_executable():
    with Room() as room:
        source = os.path.join(room.path, "s.c")
        with open(source, "w", encoding="utf-8") as text:
            text.write('#include <stdio.h>\nint main(void) { puts("static"); return 4; }\n')
        built = subprocess.run(["gcc", "-static", "-o", source[:-2], source], check=False, capture_output=True)
        bare = room.run([source[:-2]], preload=False)
        ours = room.run([source[:-2]])
        check("statically linked executable: as without", built.returncode == 0 and same(bare, ours) and
              ours.returncode == 4, tell(bare, ours))


def setuid_executable():
    with Room() as room:
        os.chmod(room.path, 0o755)
        copy = os.path.join(room.path, "host-setuid")
        shutil.copy(HOST, copy)
        os.chmod(copy, 0o4755)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", copy, "basic"]
        if os.getuid() != 0:
            command = [copy, "basic"]
        bare = room.run(command, preload=False)
        ours = room.run(command)
        # The loader itself drops the preload there; what counts is that nothing is different.
        check("setuid executable: same status", bare.returncode == ours.returncode, tell(bare, ours))


def chroot_without_proc():
    with Room() as room:
        root = os.path.join(room.path, "root")
        os.makedirs(os.path.join(root, "lib"))
        needed = set()
        for binary in (HOST, LIBRARY, os.path.join(FAKE, "libcuda.so.1")):
            listing = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
            for word in listing.split():
                if word.startswith("/"):
                    needed.add(word)
        for path in needed:
            target = root + path
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.realpath(path), target)
        for path in (HOST, LIBRARY, os.path.join(FAKE, "libcuda.so.1")):
            shutil.copy(path, os.path.join(root, "lib", os.path.basename(path)))
        chroot = (["unshare", "-U", "-r"] if os.getuid() else []) + ["chroot", root, "/lib/host", "basic"]
        env = room.env(preload=False, LD_LIBRARY_PATH="/lib")
        bare = room.run(chroot, env=env)
        ours = room.run(chroot, env=dict(env, LD_PRELOAD="/lib/libgpumem.so"))
        check("chroot without /proc: the program runs", bare.returncode == 0 and "0 errors" in bare.stdout, tell(bare))
        noise = [line for line in ours.stderr.splitlines() if "ld.so" not in line]
        check("chroot without /proc: same under the library, at most one line",
              (bare.returncode, bare.stdout) == (ours.returncode, ours.stdout) and len(noise) <= 1, tell(bare, ours))


JAVA = """
public class NullFaults {
    int value = 1;
    static int read(NullFaults x) { return x.value; }
    public static void main(String[] a) {
        NullFaults there = new NullFaults();
        int caught = 0, sum = 0;
        for (int i = 0; i < 200000; i++) {
            try { sum += read(i % 50 == 0 ? null : there); } catch (NullPointerException e) { caught++; }
        }
        System.out.println("caught " + caught + " sum " + sum);
    }
}
"""


def jvm():
    with Room() as room:
        with open(os.path.join(room.path, "NullFaults.java"), "w", encoding="utf-8") as text:
            text.write(JAVA)
        built = subprocess.run(["javac", "-d", room.path, os.path.join(room.path, "NullFaults.java")],
                               capture_output=True, text=True, check=False)
        agent = os.path.join(B, "test/preload/libjvmagent.so")
        command = ["java", "-XX:-OmitStackTraceInFastThrow", "-Xshare:auto", "-agentpath:" + agent, "-cp", room.path, "NullFaults"]
        bare = room.run(command, preload=False)
        ours = room.run(command)
        check("JVM taking null-pointer faults, with CUDA memory in it: same output", built.returncode == 0 and
              bare.returncode == 0 and "caught 4000 sum 196000" in bare.stdout and same(bare, ours), tell(bare, ours))
        check("JVM: recorded", len(room.snapshots("exit")) == 1, room.files())


def start_up_cost():
    """Printed, never asserted: what the preload adds to a program that never calls CUDA."""
    with Room() as room:
        times = {}
        for name, preload in (("bare", False), ("preload", True)):
            env = room.env(preload=preload, fake=False)
            runs = []
            for _ in range(40):
                began = time.monotonic()
                subprocess.run(["/bin/true"], env=env, check=True)
                runs.append(time.monotonic() - began)
            times[name] = sorted(runs)[len(runs) // 2]
        print("# /bin/true: %.2f ms bare, %.2f ms under the preload (medians of 40)" % (
            times["bare"] * 1e3, times["preload"] * 1e3))


without_cuda()
habits()
limited_file_size()
hostile_places()
static_executable()
setuid_executable()
chroot_without_proc()
small_shm()
same_pid()
jvm()
start_up_cost()
assert GPUMEM
finish()
