#!/usr/bin/env python3
"""Run test programs that speak TAP, add up, and say what happened in one closing line.

usage: test/run.py [--build DIR] [--jobs N] [--timeout S] TEST...

A test is an executable, or a .py, .sh or .mjs file. It prints "ok N - name", "not ok N - name # why"
or "ok N - name # SKIP why", and exits 0 or 1. A program that prints no such line, dies of a
signal, runs out of time, or exits non-zero without a "not ok" counts as failed. A line
"# timeout: N" ("// timeout: N" in JavaScript) among the first 40 lines of a script gives it N seconds. In CI (CI=true) a skip
counts as a failure unless its reason begins with "no GPU".
"""
import argparse
import concurrent.futures
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

LINE = re.compile(r"^(not ok|ok)\b\s*\d*\s*-?\s*(.*)$")
SKIP = re.compile(r"#\s*skip\b\s*(.*)$", re.IGNORECASE)


def command_of(path):
    if path.endswith(".py"):
        return [sys.executable, path]
    if path.endswith(".sh"):
        return ["bash", path]
    if path.endswith(".mjs"):
        return ["node", "--test-reporter=tap", path]
    return [path]


def timeout_of(path, default):
    if path.endswith((".py", ".sh", ".mjs")):
        with open(path, encoding="utf-8", errors="replace") as script:
            for _, line in zip(range(40), script):
                found = re.match(r"(?:#|//)\s*timeout:\s*(\d+)", line)
                if found:
                    return int(found.group(1))
    return default


def environment(path, build):
    env = dict(os.environ, B=build, LC_ALL="C.UTF-8")
    for name in list(env):
        if name.startswith(("GPUMEM_", "FAKECUDA_")) or name == "LD_PRELOAD":
            del env[name]
    env.setdefault("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1")
    # TSan has a program with threads sleep for a second as it ends, which each libcheck test does; test_sanitized's
    # whole programs keep that.
    env.setdefault("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=50")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    # libcheck's limits are of real time: a busy machine takes several times as long. What hangs is ended by our own limit.
    env["CK_TIMEOUT_MULTIPLIER"] = "16"
    return env


def end_session(leader):
    """Kill all that runs in the session of @leader: a child in a process group of its own holds our pipe open."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getsid(int(entry)) == leader:
                os.kill(int(entry), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def watch(limit, ended, stop):
    """Call @stop when @limit seconds have passed before @ended is set. While more is ready to run than the machine has
    cores, a second counts for its share of a core, at least for a quarter: a test that is slow for want of a processor
    does not hang."""
    while limit > 0 and not ended.wait(1):
        limit -= max(0.25, min(1, (os.cpu_count() or 1) / max(1, os.getloadavg()[0])))
    if limit <= 0:
        stop()


def run(path, build, default_timeout):
    """One test program: (path, passed, failed, skipped, seconds, seconds of CPU, details)."""
    started = time.monotonic()
    limit = timeout_of(path, default_timeout)
    details = []
    if not os.path.exists(path):
        return path, 0, 1, 0, 0.0, 0.0, ["%s: not built (make %s; make tests builds all)" % (path, path)]
    if os.path.isdir(path):
        return path, 0, 1, 0, 0.0, 0.0, ["%s: a folder; name the scripts or programs in it" % path]
    expired, ended = threading.Event(), threading.Event()

    def stop():
        expired.set()
        end_session(child.pid)

    child = subprocess.Popen(command_of(path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=environment(path, build), start_new_session=True)
    output = []
    reader = threading.Thread(target=lambda: output.append(child.stdout.read()))
    watcher = threading.Thread(target=watch, args=(limit, ended, stop))
    reader.start()
    watcher.start()
    _, status, usage = os.wait4(child.pid, 0)       # which tells the CPU time of the test's own children, too
    ended.set()
    watcher.join()
    child.returncode = os.waitstatus_to_exitcode(status)
    end_session(child.pid)      # what it left behind
    reader.join()
    child.stdout.close()
    text = output[0].decode("utf-8", "replace")
    passed = failed = skipped = 0
    for line in text.splitlines():
        found = LINE.match(line)
        if not found:
            continue
        skip = SKIP.search(found.group(2))
        if found.group(1) == "not ok":
            failed += 1
            details.append(line)
        elif skip:
            reason = skip.group(1)
            if os.environ.get("CI") and not reason.lower().startswith("no gpu"):
                failed += 1
                details.append("not ok - skipped in CI: " + line)
            else:
                skipped += 1
                details.append(line)
        else:
            passed += 1
    wrong = None
    if expired.is_set():
        wrong = "ran past %d s" % limit
    elif child.returncode < 0:
        wrong = "died of signal %d" % -child.returncode
    elif child.returncode and not failed:
        wrong = "exit %d" % child.returncode
    elif not passed + failed + skipped:
        wrong = "ran no test"
    if wrong:
        failed += 1
        details.append("not ok - %s: %s" % (path, wrong))
    if failed:
        details.append("---- the end of its output:")
        details.extend(text.splitlines()[-40:])
    return path, passed, failed, skipped, time.monotonic() - started, usage.ru_utime + usage.ru_stime, details


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    # More than there are cores: many tests wait for most of their time.
    parser.add_argument("--jobs", type=int, default=min(8, 2 + (os.cpu_count() or 1)))
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("tests", nargs="*")
    args = parser.parse_args()
    # Whoever started us may have signals ignored (nohup, &) or blocked: tests send them and mean it.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:       # a shell's background job
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    totals, times = [0, 0, 0], []
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(run, path, args.build, args.timeout) for path in args.tests]
        for job in concurrent.futures.as_completed(jobs):
            path, passed, failed, skipped, seconds, busy, details = job.result()
            for i, count in enumerate((passed, failed, skipped)):
                totals[i] += count
            times.append((seconds, path))
            word = "FAIL" if failed else "ok"
            print("%-4s %-52s %4d passed %s%s %6.1f s, %6.1f s of CPU" % (
                word, path, passed, "%d failed " % failed if failed else "",
                "%d skipped" % skipped if skipped else "", seconds, busy))
            for line in details:
                print("     " + line)
            sys.stdout.flush()
    print("longest: " + ", ".join("%s %.0f s" % (path, seconds) for seconds, path in sorted(times, reverse=True)[:10]))
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("all of it took %.0f s, and %.0f s of CPU" % (time.monotonic() - started, spent.ru_utime + spent.ru_stime))
    print("%d passed, %d failed, %d skipped" % tuple(totals))
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
