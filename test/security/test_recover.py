"""gpumem recover in places where another user may write: nothing is read, and nothing goes, but what lies there."""
import ctypes
import glob
import os
import shutil
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from second_user import UID, Second, become  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import killed_journal, load  # noqa: E402

CLONE_NEWNS, MS_REC_PRIVATE, RENAME_EXCHANGE, AT_FDCWD = 0x20000, 0x44000, 2, -100
libc = ctypes.CDLL(None, use_errno=True)


def alone():
    """No other's journals are here."""
    assert libc.unshare(CLONE_NEWNS) == 0 and libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) == 0
    assert libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, None) == 0


class Place:
    """A directory like /tmp; root's directory with a dead process's journal; and where root works."""

    def __init__(self, room):
        os.chmod(room.path, 0o755)
        self.pid, journal = killed_journal(room, 0.1)
        self.tmp, self.secret, self.work = (os.path.join(room.path, name) for name in ("tmp", "secret", "work"))
        for path in (self.tmp, self.secret, self.work):
            os.mkdir(path, 0o700)
        os.chmod(self.tmp, 0o1777)
        self.victim = os.path.join(self.secret, "victim.journal")
        self.kept = journal + ".kept"
        os.rename(journal, self.kept)
        self.clear()

    def directory(self, name, uid=UID, mode=0o700):
        path = os.path.join(self.tmp, name)
        os.mkdir(path)
        os.chown(path, uid, uid)
        os.chmod(path, mode)
        return path

    def copy(self, directory, uid=UID):
        """The same journal for the attacker to offer."""
        path = os.path.join(directory, "victim.journal")
        subprocess.run(["cp", "--sparse=always", self.kept, path], check=True)
        os.chown(path, uid, uid)
        os.chmod(path, 0o600)

    def recover(self, *words, uid=0):
        env = {k: v for k, v in os.environ.items() if not k.startswith("GPUMEM_") and k != "XDG_RUNTIME_DIR"}
        env["TMPDIR"] = self.tmp

        def begin():
            alone()
            if uid:
                become(uid)
        return subprocess.run([GPUMEM, "recover", *words], capture_output=True, text=True, errors="replace", timeout=60,
                              check=False, cwd=self.work, env=env, preexec_fn=begin)

    def snapshots(self):
        return glob.glob(self.work + "/*.json")

    def clear(self):
        for path in glob.glob(self.tmp + "/*"):
            if os.path.islink(path):
                os.unlink(path)
            else:
                shutil.rmtree(path)
        for path in self.snapshots():
            os.unlink(path)
        if not os.path.exists(self.victim):
            subprocess.run(["cp", "--sparse=always", self.kept, self.victim], check=True)

    def untouched(self):
        return os.path.exists(self.victim) and not self.snapshots()


def exchange(ready, one, other):
    """Two names change places, again and again."""
    ready()
    while True:
        libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)


with Room() as room:
    place = Place(room)

    def without(name, make, *words):
        make()
        done = place.recover(*words or ["--all"])
        check("%s: nothing is read, and nothing goes" % name, place.untouched(), done)
        place.clear()

    def link(name, to):
        path = os.path.join(place.tmp, name)
        os.symlink(to, path)
        os.lchown(path, UID, UID)

    without("the directory is a link", lambda: link("gpumem-0", place.secret))
    without("the directory that is named is another's link", lambda: link("gpumem-0", place.secret), place.tmp + "/gpumem-0")
    without("with a slash, too", lambda: link("gpumem-0", place.secret), place.tmp + "/gpumem-0/")
    without("a link below the directory that is named", lambda: link("gpumem-0", place.secret), place.tmp)
    without("a run's room is a link", lambda: link("gpumem-run-abcdef", os.path.dirname(place.secret)))
    without("another user's directory", lambda: place.copy(place.directory("gpumem-0")))
    without("another user's, with a suffix", lambda: place.copy(place.directory("gpumem-0-0123456789abcdef")))
    without("a directory that everybody may write", lambda: place.copy(place.directory("gpumem-0", uid=0, mode=0o777), uid=0))
    without("another user's under a third one's name", lambda: place.copy(place.directory("gpumem-%d" % (UID + 1))), place.tmp)

    def link_inside():
        directory = place.directory("gpumem-%d" % UID)
        os.symlink(place.victim, directory + "/a.journal")
        os.lchown(directory + "/a.journal", UID, UID)
    without("a journal that is a link", link_inside, place.tmp)
    without("a journal that is a link, in the directory that is named", link_inside, place.tmp + "/gpumem-%d" % UID)
    without("a journal that is a link, by its name", link_inside, place.tmp + "/gpumem-%d/a.journal" % UID)

    directory = place.directory("gpumem-%d" % UID)
    os.link(place.victim, directory + "/a.journal")
    done = place.recover(place.tmp)
    check("of a second name of root's journal only that name goes", os.path.exists(place.victim) and
          not os.path.exists(directory + "/a.journal"), done)
    place.clear()

    for words, uid in ((["--all"], 0), ([place.tmp], UID), ([place.tmp + "/gpumem-%d" % UID], UID),
                       ([place.tmp + "/gpumem-%d/victim.journal" % UID], UID)):
        directory = place.directory("gpumem-%d" % uid)
        link("other", place.secret)
        open_tmp = os.path.join(place.tmp, "held")
        with Second(exchange, directory, os.path.join(place.tmp, "other")) as other:
            for _ in range(40):
                for there in (directory, os.path.join(place.tmp, "other")):
                    if not os.path.islink(there) and not os.path.exists(there + "/victim.journal"):
                        try:
                            place.copy(there)
                        except (OSError, subprocess.CalledProcessError):
                            pass
                        break
                done = place.recover(*words)
                if not os.path.exists(place.victim):
                    break
        check("names that change while they are looked at: %s" % " ".join(w.replace(place.tmp, "") or "DIR" for w in words),
              os.path.exists(place.victim), done)
        place.clear()

with Room() as room:
    place = Place(room)
    place.directory("gpumem-%d" % UID, uid=UID + 1)
    place.copy(place.directory("gpumem-%d-0123456789abcdef" % UID))
    os.chown(place.work, UID, UID)
    done = place.recover("--all", uid=UID)
    check("a user whose directory another one has taken finds the other directory", len(place.snapshots()) == 1 and
          load(place.snapshots()[0])["process"]["pid"] == place.pid and
          not os.listdir(place.tmp + "/gpumem-%d-0123456789abcdef" % UID), done)
    os.unlink(place.snapshots()[0])
    place.copy(place.tmp + "/gpumem-%d-0123456789abcdef" % UID)
    done = place.recover(str(place.pid), uid=UID)
    check("by pid, too", len(place.snapshots()) == 1, done)
    os.unlink(place.snapshots()[0])
    place.copy(place.tmp + "/gpumem-%d-0123456789abcdef" % UID)
    done = place.recover(place.tmp)
    check("and root, who names the place", len(place.snapshots()) == 1, done)

finish()
