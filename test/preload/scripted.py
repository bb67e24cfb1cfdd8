"""Running test/preload/script, a host program that does what its arguments say, on the stand-in driver."""
import os

from tap import B, Room, check, live_bytes, tell

SCRIPT = os.path.join(B, "test/preload/script")
DRIVER = os.path.join(B, "test/preload/libstandin.so")
TOO_MUCH = 1 << 41      # bytes that libstandin.so refuses, as it does 666


class Play(Room):
    """A room in which script() runs the words, with the library unless preload=False."""

    def script(self, *words, preload=True, timeout=100, **options):
        options.setdefault("DRIVER", DRIVER)
        options.setdefault("OUT", self.out)
        return self.run([SCRIPT] + list(words), env=self.env(preload=preload, **options), timeout=timeout)

    def live(self, reason):
        """Bytes of live blocks in each snapshot of @reason."""
        return [live_bytes(snapshot) for snapshot in self.snapshots(reason)]


def behaves(name, room, *words, status=0, said="", **options):
    """Run with the library: the exit status, and its lines on stderr. Returns the run."""
    run = room.script(*words, **options)
    check("%s: exit status" % name, run.returncode == status, tell(run))
    check("%s: says %s" % (name, repr(said) if said else "nothing"),
          said in run.stderr if said else not run.stderr, run.stderr)
    return run
