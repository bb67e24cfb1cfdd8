"""What the tests of attacks on places share: programs of a second user, their umask, and where their journals are."""
import glob
import os
import signal
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B  # noqa: E402
from verbs import wait_for  # noqa: E402

USER, STRANGER = 61187, 61188           # nobody's: no account has these numbers
TRAINING = os.path.join(B, "test/apps/app_training")


def as_user(uid, umask=0o022):
    """For Popen's preexec_fn: another user, without root's groups, under this umask."""
    def become():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.umask(umask)
    return become


def journals(*places):
    return sorted(path for place in places for path in glob.glob(place + "/**/*.journal", recursive=True))


class Waiting:
    """A program that holds memory until it is killed, of @uid, which must be able to write into room.out."""

    def __init__(self, room, uid=0, umask=0o022, command=(TRAINING, "--wait", "--steps", "2"), **options):
        self.child = subprocess.Popen(command, env=room.env(**options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, cwd="/", start_new_session=True,
                                      preexec_fn=as_user(uid, umask) if uid or umask != 0o022 else None)
        self.pid = self.child.pid
        self.said = ""
        for line in self.child.stdout:
            self.said += line
            if "waiting" in line:
                break

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def journal(self, *places):
        """Its journal, if it lies in one of these places."""
        return next((path for path in journals(*places) if ".%d." % self.pid in path), None)

    def kill(self):
        if self.child.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.child.wait(timeout=60)
        self.child.stdout.close()


__all__ = ["STRANGER", "TRAINING", "USER", "Waiting", "as_user", "journals", "wait_for"]
