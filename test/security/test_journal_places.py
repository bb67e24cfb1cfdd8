"""Where journals are put: umasks, volumes of a group, names that somebody else has taken."""
import os
import stat
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/security")
from other_user import STRANGER, USER, Waiting, journals  # noqa: E402
from tap import Room, check, finish  # noqa: E402


def open_to_all(room):
    os.chmod(room.path, 0o755)
    for path in (room.out, room.journals):
        os.chmod(path, 0o1777)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


# ---- umasks: whatever they take away, there is a journal, now and the next time --------------------------------------
for umask in (0o400, 0o700, 0o777, 0o177):
    with Room() as room:
        open_to_all(room)
        own = os.path.join(room.journals, "gpumem-%d" % USER)
        for mask in (umask, 0o022):
            with Waiting(room, USER, mask) as program:
                check("umask %03o after %03o: the journal is where it should be" % (mask, umask),
                      program.journal(own) and mode(own) == 0o700 and mode(program.journal(own)) == 0o600,
                      (program.said, os.listdir(room.journals), oct(mode(own)) if os.path.exists(own) else None))
with Room() as room:
    open_to_all(room)
    own = os.path.join(room.journals, "gpumem-%d" % USER)
    for left, what in ((0o000, "an earlier version left a directory of mode 0"), (0o2770, "a volume's manager gave the group access"),
                       (0o777, "it was opened to all"), (0o2700, "it is setgid")):
        if not os.path.isdir(own):
            os.mkdir(own)
            os.chown(own, USER, USER)
        os.chmod(own, left)
        with Waiting(room, USER) as program:
            check("%s: it is taken, and shut" % what, program.journal(own) and mode(own) & 0o777 == 0o700 and
                  mode(own) & 0o2000 == left & 0o2000, (program.said, oct(mode(own))))

# ---- a volume of a group, as an orchestrator makes it: setgid, its group, whatever the user ---------------------------
with Room() as room:
    open_to_all(room)
    os.chown(room.journals, 0, USER)
    os.chmod(room.journals, 0o2775)
    for _ in range(2):
        with Waiting(room, USER) as program:
            [path] = journals(room.journals) or [""]
            check("a setgid volume: the journal is on it", ".%d." % program.pid in path and mode(os.path.dirname(path)) & 0o777 == 0o700,
                  (program.said, journals(room.journals)))
        for path in journals(room.journals):
            os.unlink(path)
        # What the volume's manager does to what it finds, before the next container starts.
        for path, below, _ in os.walk(room.journals):
            os.chmod(path, mode(path) | 0o2770)

# ---- names: somebody else has the one that everybody knows -------------------------------------------------------------
def squat(path):
    os.mkdir(path)
    os.chown(path, STRANGER, STRANGER)
    os.chmod(path, 0o777)


def link(path):
    os.symlink("../out", path)            # journals() goes through it: not all of /tmp
    os.lchown(path, STRANGER, STRANGER)


def plain(path):
    os.close(os.open(path, os.O_CREAT))


for what, make in (("a directory", squat), ("a link", link), ("a file", plain)):
    with Room() as room:
        open_to_all(room)
        taken = os.path.join(room.journals, "gpumem-%d" % USER)
        make(taken)
        squat(taken + "-0123456789abcdef")
        squat(taken + "0")
        places = []
        for _ in range(2):
            with Waiting(room, USER) as program:
                places.append(os.path.dirname(program.journal(room.journals) or ""))
                check("%s of a stranger's has the name: the journal has another, that is the user's own" % what,
                      places[-1].startswith(taken + "-") and os.lstat(places[-1]).st_uid == USER and mode(places[-1]) == 0o700 and
                      not places[-1].endswith("-0123456789abcdef"), (program.said, journals(room.journals), os.listdir(room.journals)))
        check("and the next one finds it by its owner", places[0] == places[1], places)
        with Waiting(room) as program:
            check("root's is where it always is", program.journal(os.path.join(room.journals, "gpumem-0")), os.listdir(room.journals))

finish()
