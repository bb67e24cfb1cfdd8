"""What pages and comments name is there: files and functions, in docs/architecture.md, CONTRIBUTING.md, the
other pages, and the comments of the library."""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
from tap import check, finish  # noqa: E402

TRACKED = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False).stdout.split()
if not TRACKED:     # an export without its history
    TRACKED = [os.path.join(place, name)[2:] for place, _, names in os.walk(".") if not place.startswith(("./build", "./.git")) for name in names]
TRACKED = [path for path in TRACKED if os.path.exists(path)]
PLACES = {os.path.dirname(path) for path in TRACKED}
PLACES |= {os.path.dirname(place) for place in PLACES}
NAMES = {os.path.basename(path) for path in TRACKED}
LIBRARY = [path for path in TRACKED if path.startswith(("allocator/", "recorder/", "preload/", "tools/")) and path.endswith((".c", ".h", ".def", ".S"))]
FILE = re.compile(r"(?<![\w.<%*{$/-])([A-Za-z_][\w/-]*\.(?:c|h|S|py|sh|def|cu|cc|txt|golden))\b(?![\w(/.])")
# Stand for any file of that kind, or are a program's own in an example.
EXAMPLES = {"NAME.c", "test_NAME.py", "test_VERB.py", "hook_KIND.c", "app.c", "app.cu", "f.c", "train.py"}
# Of others' sources.
EXAMPLES |= {"valgrind.h", "nvtxTypes.h", "lnotab_notes.txt", "_memory_viz.py"}
SYSTEM = ["/usr/include", "/usr/lib/gcc", os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include", *glob.glob("/usr/include/*-linux-gnu")]


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read()


def comments(text):
    return "\n".join(re.findall(r"/\*.*?\*/|//[^\n]*", text, re.S))


CODE = {path: re.sub(r"/\*.*?\*/", " ", read(path), flags=re.S) for path in TRACKED if path.endswith((".c", ".h", ".def", ".S", ".cc", ".cu", ".map"))}
WORDS = set()
for code in CODE.values():
    WORDS |= set(re.findall(r"\b(?:gm|gpumem|GM|GPUMEM)_\w+", code))
# GM_HOOK and its like paste names together.
PASTED = tuple({head for code in CODE.values() for head in re.findall(r"\b((?:gm|GM)_\w*)\s*##", code)} - {"gm_", "GM_"})


def known(name):
    return name in WORDS or name.endswith("_") or name.startswith(PASTED)


def there(name, page=""):
    """Is a file of that name, or the end of its path, in the tree or the system?"""
    if "/" not in name:
        return name in NAMES or name in EXAMPLES or any(os.path.exists(os.path.join(place, name)) for place in SYSTEM)
    beside = os.path.normpath(os.path.join(os.path.dirname(page), name))
    return beside in TRACKED or any(path == name or path.endswith("/" + name) for path in TRACKED) or \
        os.path.basename(name) in EXAMPLES or any(os.path.exists(os.path.join(place, name)) for place in SYSTEM)


pages = [path for path in TRACKED if path.endswith(".md")]
check("there are pages and sources", len(pages) >= 10 and len(LIBRARY) > 200, (len(pages), len(LIBRARY)))
for page in pages:
    quoted = re.findall(r"`([^`\n]+)`", read(page))
    files = {name for words in quoted for name in FILE.findall(words)}
    lost = sorted(name for name in files if not there(name, page))
    check("%s: the files that it names are there" % page, not lost, lost)
    folders = {words.rstrip("/") for words in quoted if re.fullmatch(r"[a-z][\w/-]*/", words) and not words.startswith(("build/", "/"))}
    # A page names the folders below its own, and those of a floor, without the way to them.
    lost = sorted(name for name in folders if name not in PLACES and not any(place.endswith("/" + name) for place in PLACES))
    check("%s: the folders, too" % page, not lost, lost)
    functions = {name for words in quoted for name in re.findall(r"\b((?:gm|GM)_\w+)", words)}
    lost = sorted(name for name in functions if not known(name))
    check("%s: and the functions" % page, not lost, lost)

lost, unknown = [], []
for path in LIBRARY:
    said = comments(read(path))
    lost += ["%s: %s" % (path, name) for name in FILE.findall(said) if not there(name, path)]
    unknown += ["%s: %s" % (path, name) for name in set(re.findall(r"\b(gm_\w+|GM_\w+)\b(?!\*)", said))
                if not known(name) and not any(word.startswith(name + "_") for word in WORDS)]
check("the library's comments name files that are there", not lost, sorted(set(lost)))
check("and functions that are there", not unknown, sorted(unknown))
finish()
