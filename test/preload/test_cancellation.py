#!/usr/bin/env python3
"""No thread of a program reaches a cancellation point in the library while it can be cancelled: it would end there, and hold
our locks for good. libcancelpoints.so stands before the C library and reports each one; the storms run with it, too, since they
meet the rare waits.
"""
import os
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import TOO_MUCH, Play, tell  # noqa: E402
from tap import B, LIBRARY, POINTS, check, finish  # noqa: E402

NO_THREAD = os.path.join(B, "test/preload/libnothread.so")
LIVES = {
    "a life": ["alloc 100", "alloc %d" % TOO_MUCH, "files oom 1", "snapshot", "kill 10", "files signal 1", "many 3000", "exit 0"],
    "_exit": ["alloc 100", "_exit 0"],
    "threads": ["detached", "many 300", "end", "storm 300", "exit 0"],
}


def life(name, words, preload, said="", **options):
    with Play() as room:
        run = room.script(*words, LD_PRELOAD=":".join(preload + [LIBRARY, POINTS]), **options)
        told = [line for line in run.stderr.splitlines() if line.startswith("libcancelpoints: ")]
        check("%s: it ends well" % name, run.returncode == 0 and said in run.stderr, tell(run))
        check("%s: no cancellation point" % name, not told, told)


def main():
    for allocator in ("native", "caching"):
        for name, words in LIVES.items():
            life("%s, %s" % (name, allocator), words, [], allocator=allocator)
        life("no helper thread, %s" % allocator, ["alloc 100", "snapshot", "exit 0"], [NO_THREAD], "there is no helper thread",
             allocator=allocator)
        life("a line is said, %s" % allocator, ["alloc 100", "exit 0"], [], "OXYGEN", allocator=allocator, oxygen="1")
    # Every function of the C library that is a cancellation point, and that the library is linked to, is looked at.
    names = subprocess.run(["nm", "-D", "--undefined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    needed = {line.split()[-1].split("@")[0] for line in names.splitlines()}
    watched = {line.split()[-1] for line in subprocess.run(["nm", "-D", "--defined-only", POINTS], capture_output=True,
                                                           text=True, check=True).stdout.splitlines()}
    points = {"accept", "clock_nanosleep", "close", "connect", "creat", "epoll_wait", "fallocate", "fdatasync", "fsync",
              "msync", "nanosleep", "open", "openat", "pause", "poll", "ppoll", "pread", "pread64", "preadv", "pselect",
              "pthread_cond_timedwait", "pthread_cond_wait", "pthread_join", "pthread_testcancel", "pwrite", "read", "readv",
              "recv", "recvfrom", "recvmsg", "select", "sem_timedwait", "sem_wait", "send", "sendmsg", "sendto", "sigsuspend",
              "sigtimedwait", "sigwait", "sigwaitinfo", "sleep", "splice", "tcdrain", "usleep", "wait", "waitid", "waitpid",
              "write", "writev"}
    # Whoever sleeps in the library holds something, or waits for somebody: never by these.
    sleeps = needed & {"clock_nanosleep", "nanosleep", "poll", "select", "sem_wait", "sleep", "usleep"}
    check("the library sleeps by no cancellation point", not sleeps, sleeps)
    check("libcancelpoints.so knows each that the library is linked to", needed & points and needed & points <= watched,
          needed & points - watched)
    finish()


main()
