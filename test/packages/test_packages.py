#!/usr/bin/env python3
"""The packages of `make dist`: each is installed into a root that has nothing else, and used there. It runs as root, for chroot."""
# timeout: 600
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

import yaml

sys.path.insert(0, "test")
sys.path.insert(0, "test/docs")
from blocks import Blocks  # noqa: E402
from tap import B, FAKE, Room, check, finish, tell  # noqa: E402

DIST = os.path.join(B, "dist")
FLEET = Blocks("docs/fleet.md")
# What is copied into an empty root, with the libraries that they need.
PROGRAMS = ["sh", "bash", "cat", "cp", "mv", "rm", "mkdir", "find", "sed", "dirname", "head", "ls", "env", "tar", "gzip", "pkg-config"]
APPS = [os.path.join(B, "test/apps/demo_app.shared"), os.path.join(B, "test/apps/app_training")]


def sh(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False, **more)


def one(pattern):
    """The one file of build/dist with such a name."""
    found = glob.glob(os.path.join(DIST, pattern))
    return found[0] if check("make dist has made %s" % pattern, len(found) == 1, found) else None


def copied(root, path):
    """@path and what the loader needs for it, under @root."""
    needed = re.findall(r"(/\S+) \(0x", sh("ldd", path).stdout)
    for file in [path] + [n for n in needed if FAKE not in n]:
        to = root + file
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if not os.path.exists(to):
            shutil.copy2(os.path.realpath(file), to)


def empty_root(root):
    """A root with a shell, a few programs, a CUDA program and the driver that needs no GPU."""
    for name in ("bin", "tmp", "proc", "dev", "cuda", "usr/bin", "etc"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/bin")
        if check("the test's own %s is here" % name, path):
            copied(root, os.path.realpath(path))
            if not os.path.lexists(os.path.join(root, "bin", name)):
                os.symlink(os.path.realpath(path), os.path.join(root, "bin", name))
    for path in (FAKE + "/libcuda.so.1", FAKE + "/libcudart.so.13", *APPS):
        shutil.copy2(path, root + "/cuda/")
        for file in re.findall(r"(/\S+) \(0x", sh("ldd", path).stdout):
            if FAKE not in file:
                copied(root, file)


def inside(root, command):
    """A shell's command in @root, which sees its processes."""
    script = "mount --bind /proc %s/proc && mount --bind /dev %s/dev && exec chroot %s env -i PATH=%s HOME=/tmp LD_LIBRARY_PATH=/cuda sh -c \"$0\"" % (
        root, root, root, "/opt/gpumem/bin:/usr/local/bin:/usr/bin:/bin")
    return sh("unshare", "-m", "--propagation", "private", "sh", "-c", script, command, timeout=120)


def used(what, root, prefix, libdir="lib"):
    """gpumem, as it is installed below @prefix of @root, does its work there."""
    ran = inside(root, "cd /tmp && gpumem run --output=/tmp/%c.json -- /cuda/demo_app.shared >/tmp/out; echo $?; ls /tmp")
    check("%s: gpumem run records a CUDA program" % what, re.search(r"^demo_app.*\.json$", ran.stdout, re.M), tell(ran))
    ran = inside(root, "gpumem summary /tmp/demo_app*.json")
    check("%s: gpumem summary reads it" % what, ran.returncode == 0 and "Allocated memory" in ran.stdout, tell(ran))
    ran = inside(root, "rm -f /tmp/*; sh %s/share/gpumem/preload.sh sh -c 'echo $LD_PRELOAD'" % prefix)
    check("%s: preload.sh finds the library" % what, ran.returncode == 0 and "libgpumem.so" in ran.stdout, tell(ran))
    ran = inside(root, "PKG_CONFIG_PATH=%s/%s/pkgconfig pkg-config --cflags --variable=preload gpumem" % (prefix, libdir))
    preload = ran.stdout.strip()
    check("%s: pkg-config names the library, and it is there" % what,
          ran.returncode == 0 and preload and inside(root, "ls %s" % preload).returncode == 0, tell(ran))
    ran = inside(root, "PKG_CONFIG_PATH=%s/%s/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 pkg-config --cflags gpumem" % (prefix, libdir))
    header = re.search(r"-I(\S+)", ran.stdout)
    check("%s: pkg-config --cflags names the header's directory" % what, header and inside(root, "ls %s/gpumem.h" % header.group(1)).returncode == 0, tell(ran))
    pages = glob.glob(root + prefix + "/share/man/man*/*gpumem*")
    ran = sh("man", "-l", [p for p in pages if "gpumem-run.1" in p][0] if pages else "/none", env=dict(os.environ, MANPAGER="cat", MANWIDTH="80"))
    check("%s: manual pages, which man shows" % what, len(pages) > 15 and "gpumem run" in ran.stdout, (len(pages), tell(ran)))
    completion = glob.glob(root + prefix + "/share/bash-completion/completions/gpumem")
    ran = sh("bash", "-c", "source %s && COMP_WORDS=(gpumem summ) COMP_CWORD=1 && COMP_LINE='gpumem summ' COMP_POINT=11 && "
             "$(complete -p gpumem | sed 's/.*-F \\([^ ]*\\).*/\\1/') gpumem summ gpumem && echo ${COMPREPLY[@]}" % "".join(completion))
    check("%s: bash completes a verb" % what, ran.stdout.split()[:1] == ["summary"], tell(ran))
    check("%s: the README is there" % what, glob.glob(root + prefix + "/share/doc/gpumem/README.md*"))


def tarball(room):
    path = one("gpumem-*-linux-*.tar.gz")
    if not path:
        return
    root = room.path + "/tar"
    empty_root(root)
    shutil.copy(path, root + "/tmp/")
    ran = inside(root, "cd /tmp && tar -xzf gpumem-*.tar.gz && ./gpumem-*/bin/gpumem run --quiet -- sh -c 'echo $LD_PRELOAD'")
    check("tarball: it runs from where it is unpacked", re.search("/tmp/gpumem-.*/lib/libgpumem.so", ran.stdout), tell(ran))
    ran = inside(root, "sh /tmp/gpumem-*/install.sh /opt/gpumem && rm -r /tmp/gpumem-*")
    check("tarball: install.sh puts it below a prefix", ran.returncode == 0 and "/opt/gpumem/bin/gpumem" in ran.stdout, tell(ran))
    used("tarball", root, "/opt/gpumem")
    ran = sh("sh", "packaging/install.sh", "--help")
    check("install.sh: an option is answered with the usage", ran.returncode == 2 and "usage" in ran.stdout, tell(ran))


def debian(room):
    path = one("gpumem_*.deb")
    if not path:
        return
    needs = sh("dpkg-deb", "-f", path, "Depends", "Recommends").stdout
    check("deb: it asks for the libc6 that its files need, and recommends what it opens", needs ==
          "Depends: libc6 (>= 2.17)\nRecommends: libdw1, libmicrohttpd12\n", needs)
    root = room.path + "/deb"
    empty_root(root)
    for name in ("var/lib/dpkg/updates", "var/lib/dpkg/info"):
        os.makedirs(os.path.join(root, name))
    open(root + "/var/lib/dpkg/status", "w").close()
    ran = sh("dpkg", "--root=" + root, "--force-depends", "--force-script-chrootless", "-i", path)
    check("deb: dpkg installs it", ran.returncode == 0, tell(ran))
    ran = sh("dpkg", "--root=" + root, "--verify", "gpumem")
    check("deb: dpkg --verify has nothing to say", ran.returncode == 0 and not ran.stdout, tell(ran))
    used("deb", root, "/usr", os.path.basename(os.path.dirname(glob.glob(root + "/usr/lib/*/libgpumem.so")[0])).join(["lib/", ""]))
    ran = sh("lintian", "--allow-root", "--fail-on=error,warning", "--tag-display-limit", "0", *glob.glob(DIST + "/gpumem*.deb"))
    check("deb: lintian is content", ran.returncode == 0 and not re.search("^[EW]:", ran.stdout, re.M), tell(ran))
    ran = sh("dpkg", "--root=" + root, "--force-script-chrootless", "-P", "gpumem")
    check("deb: it goes again, and leaves nothing", ran.returncode == 0 and not glob.glob(root + "/usr/**/*gpumem*", recursive=True), tell(ran))


def red_hat(room):
    path = one("gpumem-*.rpm")
    if not path:
        return
    root = room.path + "/rpm"
    empty_root(root)
    ran = sh("rpm", "--root", root, "--nodeps", "-i", path)
    check("rpm: rpm installs it", ran.returncode == 0, tell(ran))
    used("rpm", root, "/usr", "lib64")
    for what, file in (("the package", path), ("the spec", "packaging/gpumem.spec")):
        ran = sh("rpmlint", "-r", "packaging/gpumem.rpmlintrc", "--ignore-unused-rpmlintrc", file)
        check("rpm: rpmlint is content with %s" % what, re.search(" 0 errors, 0 warnings", ran.stdout) and
              re.search("[1-9] packages|[1-9] specfiles", ran.stdout), tell(ran))
    needs = sh("rpm", "-qp", "--requires", path).stdout
    check("rpm: it needs glibc 2.17 and no program but a shell", "GLIBC_2.17" in needs and
          not re.search(r"GLIBC_2\.(1[89]|[2-9]\d)", needs) and not re.search("^/(?!bin/sh$)", needs, re.M), needs)


def typed(manifest):
    """What is lost when Kubernetes' own types read the manifest: a field that they do not have."""
    ran = sh("kubectl", "set", "env", "--local", "-f", manifest, "READ=1", "-o", "yaml")
    if not check("kubernetes: kubectl reads the manifest", ran.returncode == 0, tell(ran)):
        return
    with open(manifest, encoding="utf-8") as text:
        ours = list(yaml.safe_load_all(text))
    for mine, read in zip(ours, yaml.safe_load_all(ran.stdout)):
        lost = []

        def compare(a, b, at):
            if isinstance(a, dict) and isinstance(b, dict):
                for key, value in a.items():
                    compare(value, b.get(key, "nothing"), at + "." + key)
            elif isinstance(a, list) and isinstance(b, list) and len(a) <= len(b):
                for i, value in enumerate(a):
                    compare(value, b[i], "%s[%d]" % (at, i))
            elif str(a) != str(b) and a:
                lost.append((at, a, b))

        compare(mine, read, mine["kind"])
        check("kubernetes: every field of the %s is one" % mine["kind"], not lost, lost)


def pod(room, image):
    """The manifest's pod, with chroot for containers and a directory for the volume: @image is the root of the image."""
    with open("docs/kubernetes.yaml", encoding="utf-8") as text:
        manifest, watcher = yaml.safe_load_all(text)
    spec = manifest["spec"]
    volumes = {v["name"] for v in spec["volumes"]}
    shared, own = room.path + "/volume", room.path + "/train"
    os.mkdir(shared)
    empty_root(own)

    def container(root, each, command=None):
        check("pod: the volumes of %s are there" % each["name"], {m["name"] for m in each["volumeMounts"]} <= volumes, volumes)
        os.makedirs(root + "/gpumem", exist_ok=True)
        words = " ".join("'%s'" % w.replace("'", "'\\''") for w in command or each["command"])
        settings = " ".join("%s='%s'" % (e["name"], e["value"]) for e in each.get("env", []))
        bound = "mount --bind %s %s/gpumem && mount --bind /proc %s/proc && mount --bind /dev %s/dev && " % (shared, root, root, root)
        return sh("unshare", "-m", "--propagation", "private", "sh", "-c", bound + "exec chroot %s env -i LD_LIBRARY_PATH=/cuda "
                  "PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp %s %s" % (root, settings, words), timeout=120)

    def start():
        for each in spec["initContainers"]:
            ran = container(image, each)
            check("pod: init container %s" % each["name"], ran.returncode == 0, tell(ran))

    start()
    train = spec["containers"][0]
    check("pod: the program is started by preload.sh", train["command"][:2] == ["sh", "/gpumem/preload.sh"], train)
    ran = container(own, train, train["command"][:2] + ["/cuda/demo_app.shared"])
    check("pod: the program runs, recorded", "nothing is recorded" not in ran.stderr and glob.glob(shared + "/demo_app*.json"),
          (tell(ran), os.listdir(shared)))
    container(own, train, train["command"][:2] + ["sh", "-c", "/cuda/app_training --wait >/tmp/said & until [ -s /tmp/said ]; do :; done; kill -9 $!; wait"])
    check("pod: the program is killed, and its journal is left", glob.glob(shared + "/**/app_training*.journal", recursive=True), os.listdir(shared))
    start()
    check("pod: the next start makes a snapshot of it", glob.glob(shared + "/app_training*.recovered.json"), os.listdir(shared))
    words = watcher["spec"]["template"]["spec"]["containers"][0]["command"]
    textfile = image + "/textfile"
    os.makedirs(textfile, exist_ok=True)
    ran = inside(image, " ".join(w for w in words if w not in ("--watch", "15")))
    check("watcher: its command runs in the image", ran.returncode == 0, tell(ran))


def image(room):
    """The image of packaging/Dockerfile, by buildah from a root of our own, since a test has no network."""
    root, stores = room.path + "/base", ("--storage-driver", "vfs", "--root", room.path + "/store", "--runroot", room.path + "/run")
    empty_root(root)
    base = sh("buildah", *stores, "from", "scratch").stdout.strip()
    for words in (("copy", "--quiet", base, root, "/"), ("commit", "--quiet", base, "localhost/base")):
        sh("buildah", *stores, *words)
    command = shlex.split(FLEET.one("docker build").replace("build/dist", DIST))
    check("image: its name is the manifest's", "image: %s\n" % command[command.index("-t") + 1] in open("docs/kubernetes.yaml", encoding="utf-8").read(), command)
    ran = sh("buildah", *stores, "bud", "--isolation", "chroot", "--build-arg", "BASE=localhost/base", *command[2:])
    if not check("image: buildah makes it of the Dockerfile", ran.returncode == 0 and "Successfully tagged" in ran.stdout + ran.stderr, tell(ran)):
        return
    made = sh("buildah", *stores, "mount", sh("buildah", *stores, "from", "--pull-never", command[command.index("-t") + 1]).stdout.strip()).stdout.strip()
    used("image", made, "/usr/local")
    pod(room, made)
    for each in sh("buildah", *stores, "containers", "-q").stdout.split():
        sh("buildah", *stores, "umount", each)


def main():
    if os.geteuid() != 0:
        check("packages # SKIP chroot needs root", True)
        finish()
    with Room() as room:
        tarball(room)
        debian(room)
        red_hat(room)
        image(room)
    typed(shlex.split(FLEET.one("kubectl apply"))[3])
    finish()


if __name__ == "__main__":
    main()
