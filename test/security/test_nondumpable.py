"""A process that other programs of its user may not look into has a journal that they cannot open: the allocator's
tables are in it, and whoever writes into them kills the process."""
import os
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from second_user import UID  # noqa: E402
from tap import Room, check, finish  # noqa: E402
from verbs import gpumem, load, wait_for  # noqa: E402

# argv[1]: what it does before its first CUDA call, argv[2]: and after that.
PROGRAM = """
import ctypes, os, sys
def fall(uid):
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
def dumpable(yes):
    assert ctypes.CDLL(None).prctl(4, yes, 0, 0, 0) == 0
def keep_rights():
    assert ctypes.CDLL(None).prctl(8, 1, 0, 0, 0) == 0
exec(sys.argv[1])
cuda, at, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxPushCurrent_v2(context) and not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20))
exec(sys.argv[2])
print("ready", flush=True)
for line in sys.stdin:
    for i in range(100):
        assert not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20)) and not cuda.cuMemFree_v2(at)
    print("went on", flush=True)
"""


class Guarded:
    """The program, with its journals in a directory of @uid's."""

    def __init__(self, room, before, after, uid=UID, **options):
        os.chmod(room.path, 0o755)
        os.chown(room.journals, uid, uid)
        os.chown(room.out, uid, uid)
        self.child = subprocess.Popen([sys.executable, "-c", PROGRAM, before, after], env=room.env(**options), text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
        self.pid = self.child.pid
        self.said = self.child.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.communicate()

    def goes_on(self):
        self.child.stdin.write("on\n")
        self.child.stdin.flush()
        return self.child.stdout.readline() == "went on\n"

    def ends(self):
        return self.child.communicate()[1]


def files(room):
    return [os.path.join(path, name) for path, _, names in os.walk(room.journals) for name in names]


FALL = "fall(%d);" % UID
USER = FALL + "dumpable(1);"            # as if it had been started by that user

ALLOCATORS = ("native", "caching")
for allocator in ALLOCATORS:
    for name, before in (("a daemon that fell to a user", FALL),
                         ("a program that closed itself", USER + "dumpable(0)"),
                         ("a program with rights that its user has not", "keep_rights();" + USER)):
        with Room() as room, Guarded(room, before, "", allocator=allocator) as program:
            check("%s (%s)" % (name, allocator), program.said == "ready\n", program.said)
            check("has no file that others could open, and goes on", not files(room) and program.goes_on(), files(room))
            done = gpumem("snapshot", "-o", room.path + "/asked.json", str(program.pid))
            check("root can ask it", done.returncode == 0 and load(room.path + "/asked.json")["process"]["pid"] == program.pid,
                  done)
            said = program.ends()
            check("it says that its journal dies with it", "dies with the process" in said and
                  program.child.returncode == 0 and len(os.listdir(room.out)) >= 1, (program.child.returncode, said))

with Room() as room, Guarded(room, FALL, "", journal=room.journals + "/named.journal") as program:
    check("nor where the option names a file", program.said == "ready\n" and not files(room), files(room))

with Room() as room, Guarded(room, USER, "") as program:
    check("a program that is open to its user has a file", program.said == "ready\n" and len(files(room)) == 1, files(room))

with Room() as room, Guarded(room, USER, "dumpable(0)") as program:
    check("a program that closes itself later", program.said == "ready\n")
    gone = wait_for(lambda: not files(room), 30)
    check("has its file no longer, and goes on", gone and program.goes_on(), files(room))
    done = gpumem("snapshot", "-o", room.path + "/asked.json", str(program.pid))
    check("root can still ask it", done.returncode == 0 and load(room.path + "/asked.json")["process"]["pid"] == program.pid, done)
    program.ends()
    check("and it ends as it would", program.child.returncode == 0 and len(os.listdir(room.out)) >= 1, os.listdir(room.out))

with Room() as room, Guarded(room, "", FALL, uid=0) as program:
    check("root's journal of a daemon that falls later", program.said == "ready\n" and len(files(room)) == 1)
    paths = files(room)
    check("is still root's alone, and goes on", program.goes_on() and paths and
          all(os.stat(path).st_uid == 0 and os.stat(path).st_mode & 0o777 == 0o600 and
              os.stat(os.path.dirname(path)).st_mode & 0o77 == 0 for path in paths), paths)

# It gives its rights away step by step, and is root still, and not dumpable, when the helper thread looks, which is
# once a second. Two looks more than half a second apart take the file away: one does not.
STEPS = "import time; time.sleep(.85); os.setgroups([]); os.setresgid(%d, %d, %d); time.sleep(.3); os.setresuid(%d, %d, %d);"
with Room() as room, Guarded(room, "", STEPS % ((UID,) * 6), uid=0) as program:
    check("nor does it lose it while it falls", program.said == "ready\n" and len(files(room)) == 1, files(room))

finish()
