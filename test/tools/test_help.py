"""gpumem help, manual pages, completion: what a verb accepts is what they say, and the reverse; make install."""
import json
import glob
import os
import re
import shutil
import string
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem  # noqa: E402

LIST = gpumem("help").stdout
VERBS = re.findall(r"^  ([a-z]+) +\S", LIST, re.M)
LIBRARY = [row["name"] for row in json.loads(gpumem("options", "--json").stdout)]


def accepted(verb):
    """The options that the verb's own parser knows, asked of it alone: getopt completes a first letter."""
    long, short = set(), set()
    for letter in string.ascii_lowercase:
        for words in (["--" + letter], ["--" + letter + "=x"]):
            err = gpumem(verb, *words, stdin="", timeout=30).stderr
            long.update(word[2:] for word in " ".join(re.findall(r": --\w may be one of (.*)", err)).split())
            long.update(re.findall(r": --([a-z-]+) (?:needs a value|takes no value)", err))
    for letter in string.ascii_letters:
        if "there is no option -%s\n" % letter not in gpumem(verb, "-" + letter, stdin="", timeout=30).stderr:
            short.add(letter)
    return long, short


def documented(page):
    """The options of a page's OPTIONS: long ones, short ones."""
    options = page.split("\n.SH OPTIONS\n")[1].split("\n.SH ")[0].replace("\\-", "-")
    heads = re.findall(r"^\.TP\n(.*)$", options, re.M)
    return ({m for h in heads for m in re.findall(r"\\fB--([a-z-]+)\\fR", h)},
            {m for h in heads for m in re.findall(r"\\fB-([a-zA-Z])\\fR", h)})


def plain(source):
    done = subprocess.run(["groff", "-ww", "-man", "-Tutf8"], input=source, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


check("the list of verbs has 80 columns", all(len(line) <= 80 for line in LIST.splitlines()), [line for line in LIST.splitlines() if len(line) > 80])
for words, said in (("check --max-peek 3", "check: there is no option --max-peek; did you mean --max-peak?"), ("check -Z", "check: there is no option -Z"),
                    ("leaks --no-lins", "leaks: there is no option --no-lins; did you mean --no-lines?"), ("events --nothing=1", "events: there is no option --nothing"),
                    ("check --max-peak", "check: --max-peak needs a value: --max-peak SIZE"), ("summary -n", "summary: --top needs a value: --top N"),
                    ("summary --full=3", "summary: --full takes no value"), ("summary --help=3", "summary: --help takes no value"),
                    ("check --max=3", "check: --max may be one of --max-peak --max-reserved --max-stack --max-fragmentation --max-ooms"),
                    ("diff --by streem", "diff: --by streem: not site, stack, module, kind, size, stream, annotation or class; did you mean stream?"),
                    ("run --stack=none -- true", "run: there is no option --stack (gpumem options lists them); did you mean --stacks?"),
                    ("run --quit -- true", "run: there is no option --quit (gpumem options lists them); did you mean --quiet?")):
    done = gpumem(*words.split())
    check("gpumem %s: which verb, what is wrong, and what is near" % words, done.returncode == 2 and done.stderr.splitlines()[0] == "gpumem " + said, done)
check("the verbs are there", {"run", "summary", "leaks", "diff", "check", "replay", "help"} <= set(VERBS), VERBS)
for verb in VERBS:
    page = gpumem("help", "--man", verb).stdout
    long, short = documented(page)
    if verb != "run":
        accepts = accepted(verb)
        check("%s: what it accepts is in its page" % verb, accepts[0] <= long and accepts[1] <= short, (accepts, long, short))
        for name in long - accepts[0]:      # two names of one thing: the first letters are not ambiguous then
            err = gpumem(verb, "--" + name).stderr + gpumem(verb, "--" + name + "=x").stderr
            accepts[0].update(re.findall(r": --(%s) (?:needs a value|takes no value)" % name, err))
        check("%s: what is in its page it accepts" % verb, long <= accepts[0] and short <= accepts[1], (accepts, long, short))
    text = gpumem("help", verb).stdout
    named = re.findall(r"^  (?:-(\w), |    )--([a-z-]+)", text, re.M)
    check("%s: the help has the same" % verb, {n for _, n in named} == long and {s for s, _ in named if s} == short, (named, long))
    check("%s: help is --help is -h" % verb, text == gpumem(verb, "--help").stdout == gpumem(verb, "-h").stdout and
          text.startswith("usage: gpumem %s " % verb))
    check("%s: no line is too long" % verb, all(len(line) <= 80 for line in text.splitlines()),
          [line for line in text.splitlines() if len(line) > 80])
    described = page.split("\n.SH DESCRIPTION\n")[1].split("\n.SH ")[0]
    described = re.sub(r"(?m)^\.(PP|nf|fi)$", "", described).replace("\\-", "-").replace("\\&", "").replace("\\(aq", "'").replace("\\fB", "`").replace("\\fR", "`")
    described = described.replace("\\(ha", "^").replace("\\(ti", "~").replace("\\e", "\\")
    check("%s: the help has every word of its page" % verb, described.split() == text.split("\n\n", 1)[1].split()[:len(described.split())], (described, text))
    if shutil.which("groff"):
        shown, complaints = plain(page)
        check("%s: troff has nothing to say" % verb, not complaints and "GPUMEM-" + verb.upper() in shown, complaints)
    check("%s: the page has its parts" % verb, re.findall(r"^\.SH (.*)", page, re.M) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"], page)
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings=w", "-l", "-"], input=page, capture_output=True, text=True, check=False)
        check("%s: man shows it" % verb, done.returncode == 0 and not done.stderr and "gpumem-" + verb in done.stdout, done)

# ---- run takes the library's options ------------------------------------------------------------------------------------
page = gpumem("help", "--man", "run").stdout.replace("\\-", "-")
check("run: its page names every option of the library", all("\\fB--%s\\fR" % name in page for name in LIBRARY))
for name in LIBRARY:
    for spelled in {name, name.replace("_", "-")}:
        run = gpumem("run", "--%s=0" % spelled)
        check("run takes --%s" % spelled, run.returncode == 2 and "there is no option" not in run.stderr, run)
run = gpumem("run", "--quiet", "--frobnicate=1", "--", "true")
check("run does not take --frobnicate", run.returncode == 2 and "no option --frobnicate" in run.stderr, run)

# ---- the pages of the command and the library ---------------------------------------------------------------------------
page = gpumem("help", "--man", "gpumem").stdout
check("gpumem(1) names every verb", all(".BR gpumem\\-%s (1)" % verb in page for verb in VERBS))
check("gpumem help --man alone is gpumem(1)", gpumem("help", "--man").stdout == page)
check("troff: gpumem(1)", not shutil.which("groff") or plain(page)[1] == "", page)
page = gpumem("help", "--man", "libgpumem").stdout
check("troff: libgpumem(7)", not shutil.which("groff") or plain(page)[1] == "", page)
check("libgpumem(7) has every option", all("\n\\fB%s\\fR\n" % name in page for name in LIBRARY))
with open("preload/api/gpumem.h", encoding="utf-8") as header:
    api = set(re.findall(r"^GPUMEM_API .*?(gpumem_\w+)\(", header.read(), re.M))
check("libgpumem(7) has every function", api == set(re.findall(r"^\\fB(gpumem_\w+)\(", page, re.M)), api)

# ---- completion ---------------------------------------------------------------------------------------------------------
COMPLETE = r"""
set -e
eval "$("$1" help --completion bash)"
COMP_WORDS=("${@}"); COMP_CWORD=$(($# - 1))
compopt() { :; }
_gpumem
printf '%s\n' "${COMPREPLY[@]}"
"""


# What an interactive zsh makes of a line and a tab.
ZSH = r"""
zmodload zsh/zpty
for line in 'gpumem summ|gpumem summary' 'gpumem flame -w chu|-w churn' 'gpumem run --stacks=none timeou|none timeout'; do
	zpty z zsh -f -i
	zpty -w z "PROMPT=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; print REA''DY"
	while zpty -r z out '*READY*'; do break; done
	zpty -n -w z "${line%|*}"$'\t'
	all=''
	for ((i = 0; i < 100; i++)); do
		[[ $all != *${line#*|}* ]] || break
		sleep 0.1
		while zpty -r -t z out; do all+=$out; done
	done
	print -r -- $all
	zpty -d z
done
"""


def complete(*words, cwd=None):
    return subprocess.run(["bash", "-c", COMPLETE, "bash", GPUMEM, *words], capture_output=True, text=True, check=False,
                          cwd=cwd).stdout.split()


check("bash: verbs", complete("") == VERBS and complete("re") == [v for v in VERBS if v.startswith("re")], complete(""))
check("bash: gpumem help VERB", complete("help", "le") == ["leaks"], complete("help", "le"))
for verb in VERBS:
    long, _ = documented(gpumem("help", "--man", verb).stdout)
    want = {"--" + name for name in long} | ({"--%s=" % name for name in LIBRARY} if verb == "run" else set())
    check("bash: options of %s" % verb, set(complete(verb, "--")) == want, (complete(verb, "--"), want))
with Room() as room:
    open(os.path.join(room.path, "snapshot.json"), "w").close()
    check("bash: files", complete("leaks", "snap", cwd=room.path) == ["snapshot.json"], complete("leaks", "snap", cwd=room.path))
for words, want in ((("convert", "--to", "p"), ["pickle", "pytorch-json", "prometheus"]), (("diff", "--by", "s"), ["site", "stack", "size", "stream"]),
                    (("flame", "-w", "c"), ["count", "churn"]), (("run", "--allocator", "=", ""), ["caching", "native"]),
                    (("run", "--allocator", "="), ["caching", "native"]), (("run", "--allocator=native", "--verb"), ["--verbose="])):
    check("bash: values: %s" % " ".join(words), complete(*words) == want, (complete(*words), want))
for words in (("run", "timeou"), ("run", "--", "timeou"), ("run", "--quiet", "timeou"), ("run", "--stacks", "=", "none", "timeou")):
    check("bash: a command: %s" % " ".join(words), "timeout" in complete(*words), complete(*words))
# Every word that completion knows is one that its verb takes.
for words, option in re.findall(r"""^\t'(\w+ --[\w-]+)'(?:\|'[^']*')?\) words='([^']*)' ;;$""", gpumem("help", "--completion", "bash").stdout, re.M):
    verb, name = words.split()
    if verb in ("run", "help", "top"):      # top has no file; test_phases.py has its words
        continue
    inputs = ["test/data/gpumem-snapshot.json"] * (2 if verb == "diff" else 1) + ["--max-ooms=99"] * (verb == "check")
    inputs += ["--to", "csv"] * (verb == "convert" and name != "--to")
    bad = [w for w in option.split() if gpumem(verb, name, w, *inputs).returncode]
    check("%s takes every word that is completed" % words, not bad and option, bad)
script = gpumem("help", "--completion", "zsh").stdout
check("zsh: every verb and option is in it", all("\n\t%s) _arguments" % verb in script for verb in VERBS) and
      all("'--%s[" % name in script for verb in VERBS for name in documented(gpumem("help", "--man", verb).stdout)[0] - {"help"}))
if shutil.which("zsh"):
    done = subprocess.run(["zsh", "-n"], input=script, capture_output=True, text=True, check=False)
    check("zsh reads it", done.returncode == 0 and not done.stderr, done)
    with Room() as room:
        with open(os.path.join(room.path, "_gpumem"), "w", encoding="utf-8") as out:
            out.write(script)
        done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", room.path], capture_output=True, text=True, timeout=60, check=False)
        check("zsh completes a verb, a value, a command", "gpumem summary" in done.stdout and "-w churn" in done.stdout and
              "none timeout" in done.stdout, done)

script = gpumem("help", "--completion", "fish").stdout
check("fish: every verb and option is in it", all(" -a %s -d " % verb in script for verb in VERBS) and all(
    "'__fish_seen_subcommand_from %s' -l %s " % (verb, name) in script for verb in VERBS for name in documented(
        gpumem("help", "--man", verb).stdout)[0] - {"help"}) and all("run' -l %s -x" % name in script for name in LIBRARY))


def fish(line):
    """What fish offers for that line; None: there is no fish."""
    if not shutil.which("fish"):
        return None
    with Room() as room:
        with open(os.path.join(room.path, "gpumem.fish"), "w", encoding="utf-8") as out:
            out.write(script)
        done = subprocess.run(["fish", "-N", "-c", "source gpumem.fish; complete -C%s" % json.dumps(line)], cwd=room.path, capture_output=True,
                              text=True, check=False, env=dict(os.environ, HOME=room.path, PATH=os.path.dirname(GPUMEM) + ":" + os.environ["PATH"]))
        check("fish reads it", done.returncode == 0 and not done.stderr, done)
        return [word.split("\t")[0] for word in done.stdout.splitlines()]


check("fish: verbs, values, options", fish("gpumem summ") in (None, ["summary"]) and fish("gpumem flame -w ch") in (None, ["churn"]) and
      fish("gpumem run --allocator n") in (None, ["native"]) and fish("gpumem leaks --supp") in (None, ["--suppressions"]),
      [fish("gpumem summ"), fish("gpumem flame -w ch"), fish("gpumem run --allocator n")])

# Living processes, where a process is asked for.
with Room() as room:
    code = "import ctypes, sys, time; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0); print('up', flush=True); time.sleep(600)"
    living = subprocess.Popen([sys.executable, "-c", code], env=room.env(), stdout=subprocess.PIPE, text=True)
    try:
        living.stdout.readline()
        pid = str(living.pid)
        for words in (("top", ""), ("snapshot", ""), ("snapshot", "-o", "x", pid[:1]), ("ctl", ""), ("top", "all", "")):
            offered = complete(*words)
            check("bash: %s offers the living process" % " ".join(words), pid in offered and ("all" in offered) == (words == ("top", "") or "all" in words), offered)
        check("fish: too", all(offer is None or pid in offer for offer in (fish("gpumem top "), fish("gpumem ctl "), fish("gpumem snapshot "))))
        check("zsh: the same list", "'*:pid:_gpumem_pids'" in gpumem("help", "--completion", "zsh").stdout and re.search(
            r"(?m)^%s\tpython3" % pid, gpumem("help", "--completion", "pids").stdout), gpumem("help", "--completion", "pids"))
    finally:
        living.kill()
        living.wait()
check("bash: ctl and what it takes", {"history", "memory-limit"} <= set(complete("ctl", "1", "")) and complete("ctl", "1", "history", "o") == ["on", "off"])

# ---- wrong use ----------------------------------------------------------------------------------------------------------
for words, said in [(["frobnicate"], "there is no verb 'frobnicate'"), (["help", "frobnicate"], "no verb"),
                    (["help", "--man", "frobnicate"], "no verb"), (["sumary"], "did you mean summary?"),
                    (["help", "--completion", "csh"], "not bash, zsh, fish or pids"), (["help", "a", "b"], "usage:"),
                    (["\x1b[31mred"], "'?[31mred'")]:
    run = gpumem(*words)
    check("gpumem %s: exit 2" % " ".join(words).replace("\x1b", ""), run.returncode == 2 and said in run.stderr and not run.stdout, run)
run = gpumem()
check("gpumem alone: the list on stderr, exit 2", run.returncode == 2 and run.stderr == LIST and not run.stdout, run)
check("gpumem --help", gpumem("--help").stdout == LIST == gpumem("-h").stdout)
check("no colour where there is no terminal", "\033" not in LIST)
with open("/dev/full", "w", encoding="utf-8") as full:
    done = subprocess.run([GPUMEM, "help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
check("a full disk: exit 1", done.returncode == 1 and "No space" in done.stderr, done)

# ---- make install -------------------------------------------------------------------------------------------------------
for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
    os.environ.pop(name, None)
with Room() as room:
    run = subprocess.run(["make", "install", "DESTDIR=" + room.path, "PREFIX=/usr", "BUILD=" + os.path.relpath(B)],
                         capture_output=True, text=True, check=False)
    there = {os.path.relpath(os.path.join(d, f), room.path) for d, _, files in os.walk(os.path.join(room.path, "usr")) for f in files}
    want = {"usr/share/man/man1/gpumem.1", "usr/share/man/man7/libgpumem.7", "usr/share/bash-completion/completions/gpumem",
            "usr/share/zsh/site-functions/_gpumem", "usr/share/fish/vendor_completions.d/gpumem.fish", "usr/bin/gpumem", "usr/lib/libgpumem.so", "usr/include/gpumem.h",
            "usr/lib/pkgconfig/gpumem.pc", "usr/share/gpumem/preload.sh", "usr/lib/.debug/libgpumem.so.debug",
            "usr/bin/.debug/gpumem.debug"} | {"usr/share/man/man1/gpumem-%s.1" % v for v in VERBS}
    want |= {"usr/share/doc/gpumem/" + f for f in ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"] + glob.glob("docs/**/*.*", recursive=True)}
    check("make install", run.returncode == 0 and there == want, (run, there ^ want))
    for path, debug in (("usr/lib/libgpumem.so", "usr/lib/.debug/libgpumem.so.debug"), ("usr/bin/gpumem", "usr/bin/.debug/gpumem.debug")):
        path, debug = os.path.join(room.path, path), os.path.join(room.path, debug)
        parts = {p: subprocess.run(["readelf", "-SW", p], capture_output=True, text=True, check=False).stdout for p in (path, debug)}
        check("%s is stripped, under 5/4 of a megabyte, and names its debug information" % path[len(room.path):], ".debug_info" not in parts[path] and
              ".symtab" not in parts[path] and ".gnu_debuglink" in parts[path] and os.path.getsize(path) < 5 << 18, parts[path])
        check("%s is that of the same build" % debug[len(room.path):], ".debug_info" in parts[debug] and len({subprocess.run(
            ["readelf", "-nW", p], capture_output=True, text=True, check=False).stdout.split("Build ID:")[-1].split()[0] for p in (path, debug)}) == 1, debug)
    for words, prefix, libdir in ((["PREFIX=/usr"], "/usr", "${prefix}/lib"), (["PREFIX=/opt/gpumem"], "/opt/gpumem", "${prefix}/lib"),
                                  (["PREFIX=/opt/gpumem", "LIBDIR=/opt/gpumem/lib/x86_64-linux-gnu"], "/opt/gpumem", "${prefix}/lib/x86_64-linux-gnu"),
                                  (["PREFIX=/opt/gpumem", "LIBDIR=/lib64"], "/opt/gpumem", "/lib64")):
        elsewhere = os.path.join(room.path, "elsewhere")
        run = subprocess.run(["make", "install", "DESTDIR=" + elsewhere, "BUILD=" + os.path.relpath(B)] + words, capture_output=True, text=True,
                             check=False)
        found = glob.glob(elsewhere + "/**/gpumem.pc", recursive=True)
        lines = open(found[0], encoding="utf-8").read().splitlines() if found else []
        check("%s: gpumem.pc says so" % " ".join(words), run.returncode == 0 and len(found) == 1 and
              {"prefix=" + prefix, "libdir=" + libdir, "includedir=${prefix}/include"} <= set(lines), (run, found, lines))
        shutil.rmtree(elsewhere, ignore_errors=True)
    run = subprocess.run([os.path.join(room.path, "usr/bin/gpumem"), "run", "--quiet", "--", "sh", "-c", "echo $LD_PRELOAD"],
                         capture_output=True, text=True, check=False)
    check("the installed command finds the installed library", run.stdout.strip() == os.path.join(room.path, "usr/lib/libgpumem.so"), run)
    run = subprocess.run(["make", "uninstall", "DESTDIR=" + room.path, "PREFIX=/usr"], capture_output=True, text=True, check=False)
    left = [f for _, _, files in os.walk(os.path.join(room.path, "usr")) for f in files] + glob.glob(room.path + "/usr/**/.debug", recursive=True)
    check("make uninstall leaves nothing", run.returncode == 0 and not left, (run, left))
finish()
