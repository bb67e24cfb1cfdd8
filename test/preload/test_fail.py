# timeout: 400
"""Each call of each entry point that allocates, frees or ends something fails in turn: the program's output is
what it is without the library, every checkpoint's account is the driver's, and the journal stays sound. Then the
calls that the library makes itself fail: nobody may notice."""
import os
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import alike, app, differences, run_pair, unlike  # noqa: E402
from tap import B, Room, check, finish  # noqa: E402

APP = app("app_fail")
JOURNAL_CHECK = os.path.join(B, "test/preload/journal_check")
OUT_OF_MEMORY, NOT_PERMITTED = 2, 800
SERVED = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemFreeAsync"}     # where the cache asks for itself

# What the library asks the driver for by itself, and the program under test does not.
OURS = ["cuCtxGetDevice", "cuDeviceGetGraphMemAttribute", "cuPointerGetAttribute", "cuMemGetAddressRange_v2",
        "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode", "cuArrayGetMemoryRequirements",
        "cuMipmappedArrayGetMemoryRequirements", "cuDeviceGetName", "cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2",
        "cuDriverGetVersion", "cuDevicePrimaryCtxGetState", "cuDeviceGetCount", "cuCtxGetCurrent",
        "cuMemGetInfo_v2"]


def calls():
    with Room() as room:
        found = re.findall(r"^calls (\w+) (\d+)$", room.run([APP], preload=False).stdout, re.M)
    return [(entry, int(count)) for entry, count in found]


def one_failure(room, rule, unharmed, native=False):
    """Run with it, to a sudden end. Returns what is wrong, as sentences. A cache asks the driver for other things than
    the program does, and again after it gave back what it kept: then the program may see no failure (@unharmed) at
    all, or see it elsewhere."""
    bare, ours, directory = run_pair(room, [APP], native, FAKECUDA_FAIL=rule, APP_KILL="1", oom_snapshots=0)
    if not native and rule.endswith(":%d" % OUT_OF_MEMORY) and alike(unharmed, ours):
        bare = unharmed
    elsewhere = not native and rule.split(":")[0] in SERVED and not alike(bare, ours)
    if not alike(bare, ours, native) and not (elsewhere and bare.returncode == ours.returncode and not ours.stderr):
        return ["%s: %s" % (rule, unlike(bare, ours, native))]
    wrong = ["%s: %s" % (rule, sentence) for sentence in differences(ours.stdout, directory, None if elsewhere else bare.stdout, native)]
    journals = room.journal_files()
    if len(journals) != 1:
        return wrong + ["%s: journals %s" % (rule, journals)]
    read = room.run([JOURNAL_CHECK] + journals, preload=False)
    if read.returncode:
        wrong.append("%s: %s" % (rule, read.stdout))
    os.unlink(journals[0])
    return wrong


def every_call():
    entries = calls()
    check("the program tells its calls", len(entries) > 30 and all(count for _, count in entries),
          [entry for entry, count in entries if not count] or entries)
    with Room() as room:
        unharmed = room.run([APP], preload=False, APP_KILL="1")
        for entry, count in entries:
            wrong = []
            for n in range(count):
                wrong += one_failure(room, "%s:%d:1:%d" % (entry, n, NOT_PERMITTED if n % 2 else OUT_OF_MEMORY),
                                     unharmed)
            check("%s: each of %d calls fails in turn" % (entry, count), not wrong, "; ".join(wrong[:3]))
            if entry in SERVED:     # without a cache the program sees the very call fail
                wrong = [w for n in range(count) for w in one_failure(room, "%s:%d:1:%d" % (entry, n, OUT_OF_MEMORY), unharmed, True)]
                check("%s, native: each of %d calls fails in turn" % (entry, count), not wrong, "; ".join(wrong[:3]))


def our_own_calls():
    """With no checkpoint files, which the program itself would ask the driver for."""
    with Room() as room:
        for entry in OURS:
            rule = "%s:0:-1:%d" % (entry, 999)
            bare = room.run([APP], preload=False, FAKECUDA_FAIL=rule)
            ours = room.run([APP], FAKECUDA_FAIL=rule)
            check("our own %s fails: nobody notices" % entry, alike(bare, ours) and "done" in ours.stdout,
                  unlike(bare, ours))


def out_of_memory():
    """A device that is full: the failure is recorded with what was asked and what was free."""
    with Room() as room:
        ours = room.run([APP], FAKECUDA_CAPACITY="4M")
        bare = room.run([APP], preload=False, FAKECUDA_CAPACITY="4M")
        check("a small device: same output", alike(bare, ours), unlike(bare, ours))
        taken = room.snapshots("oom")
        failure = taken[0]["failure"] if taken else {}
        check("an OOM snapshot says what was wanted", failure.get("requested_bytes", 0) > 0 and
              failure.get("total_bytes", 0) == 4 << 20 and failure.get("entry", "").startswith("cu"), failure)


def main():
    every_call()
    our_own_calls()
    out_of_memory()
    finish()


main()
