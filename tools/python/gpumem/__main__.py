"""python -m gpumem ...: the command gpumem, found beside this package, in a source tree or on the PATH.

``python -m gpumem run -- python train.py`` becomes ``gpumem run -- python train.py``; the process is
replaced, so signals, exit status and terminal are the command's.
"""
import os
import shutil
import signal
import sys
from typing import List, NoReturn, Optional


def places() -> List[str]:
    """Return the paths to look for the command, in order: in a wheel, in the build of a source tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(here, "bin", "gpumem"), os.path.normpath(os.path.join(here, "../../../build/gpumem"))]


def find() -> Optional[str]:
    """Return the path of the command; None if it is not installed."""
    for path in places():
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    # pip's script for this package is also named gpumem, and would start itself for ever.
    own = os.path.realpath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    for directory in os.get_exec_path():
        path = shutil.which("gpumem", path=directory)
        if path and os.path.realpath(path) != own and _is_program(path):
            return path
    return None


def _is_program(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _restore_signals() -> None:
    """Stop ignoring the signals that Python ignores, as subprocess does; the next program would ignore them, too."""
    for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)


def main() -> NoReturn:
    """Become the command. Exits with a message if there is none."""
    command = find()
    if not command:
        sys.exit("gpumem: no command gpumem here: looked for %s, and on the PATH. "
                 "Build it with make, or install the wheel for this machine." % ", ".join(places()))
    sys.stdout.flush()
    sys.stderr.flush()
    _restore_signals()
    os.execv(command, [command] + sys.argv[1:])


if __name__ == "__main__":
    main()
