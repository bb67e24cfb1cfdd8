"""A program on a terminal of its own, and what its screen shows: for the tests of what draws there."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time


class Screen:
    """@command in a pty of @rows by @columns; screen() is a list of lines as they would be seen."""

    def __init__(self, command, rows=40, columns=150, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith("GPUMEM_")}
        env.update({"TERM": "xterm", **environment})
        env = {k: v for k, v in env.items() if v is not None}
        self.master, self.slave = pty.openpty()
        self.raw = b""
        self.status = None
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.pid = os.fork()
        if not self.pid:
            try:
                os.setsid()
                fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
                for fd in (0, 1, 2):
                    os.dup2(self.slave, fd)
                os.execve(command[0], command, env)
            finally:
                os._exit(127)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.ended(0):
            os.kill(self.pid, signal.SIGKILL)
            self.ended(30)
        os.close(self.master)
        os.close(self.slave)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        """What comes within that time; at once when something did."""
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.raw += os.read(self.master, 65536)
            except OSError:
                pass

    def read_rest(self):
        """All that the program wrote. Our own mark behind it says where that ends, because the terminal may still hold a part back."""
        mark = b"\x1b[0;7;0m"
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        os.write(self.slave, mark)
        while not self.raw.endswith(mark):
            self.read(1)
        self.raw = self.raw[:-len(mark)]

    def press(self, keys):
        os.write(self.master, keys.encode())

    def ended(self, seconds=30):
        """True once it has, with self.status as os.wait has it."""
        end = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                self.read_rest()
                break
            if time.monotonic() > end:
                return False
            self.read(0.02)
        return True

    def pictures(self):
        """The whole pictures that were drawn, each a list of lines without styles."""
        found = []
        for part in self.raw.decode(errors="replace").split("\x1b[H")[1:]:
            if "\x1b[J" not in part:
                continue
            text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part.split("\x1b[J")[0])
            found.append([line.rstrip() for line in text.split("\r\n")])
        return found

    def until(self, test, seconds=30):
        """Wait for a picture of which @test (or in which that text) is true: that picture, or None."""
        say = test if callable(test) else lambda lines: any(test in line for line in lines)
        seen = len(self.pictures())
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.ended(0):
            pictures = self.pictures()
            for picture in pictures[max(seen - 1, 0):]:
                if say(picture):
                    return picture
            seen = len(pictures)
            self.read(0.1)
        return None

    def restored(self):
        """Is the terminal as it was, the first screen back, with its cursor?"""
        text = self.raw.decode(errors="replace")
        return (termios.tcgetattr(self.slave) == self.before and text.rfind("\x1b[?1049l") > text.rfind("\x1b[?1049h") and
                text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"))
