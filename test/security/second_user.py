"""A second user for the tests of this directory: a child of this process that has given root away for good."""
import os
import pwd
import signal
import sys
import traceback


def unused_uid():
    """A user that nobody is."""
    uid = 61234
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    while uid in taken:
        uid += 1
    return uid


UID = unused_uid()


def become(uid=UID):
    """Give away every right that root has, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


class Second:
    """@what(*args) in a process of the second user's. It has begun when it has called the function that it
    gets first; it is killed at the end of the block. What it says in that call is in .said."""

    def __init__(self, what, *args, uid=UID):
        ready, told = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(ready)
                become(uid)
                what(lambda text="ready": os.write(told, text.encode() + b"\n"), *args)
            except BaseException:  # pylint: disable=broad-except
                os.write(told, traceback.format_exc().replace("\n", " | ").encode() + b"\n")
            os._exit(0)
        os.close(told)
        with os.fdopen(ready) as pipe:
            self.said = pipe.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def wait(self):
        """Until it ends by itself."""
        os.waitpid(self.pid, 0)
        self.pid = 0
