"""gpumem serve: what it answers, whose processes are on the page, where it listens, how it ends."""
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
import prometheus  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import Program, gpumem  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")


def ask(url, method="GET", **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def open_still(connection):
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True


def held(page, pid):
    """{labels} of the line that says what process @pid holds."""
    found = [dict(key) for key in prometheus.read(page).get("gpumem_allocated_bytes", (0, 0, {}))[2] if dict(key)["pid"] == str(pid)]
    return found[0] if len(found) == 1 else found


for words, status, said in (((), 2, "--prometheus ADDRESS:PORT"), (("--prometheus", "localhost"), 2, "not an IPv4 address and a port"),
                            (("--prometheus", "127.0.0.1:65536"), 2, "not an IPv4"), (("--prometheus", ":"), 2, "not an IPv4"),
                            (("--prometheus", "1.2.3.4.5:80"), 2, "not an IPv4"), (("--prometheus", "192.0.2.1:9847"), 1, "Cannot assign"),
                            (("--prometheus", "9847", "all"), 2, "usage")):
    run = gpumem("serve", *words)
    check("gpumem serve %s: exit %d" % (" ".join(words), status), run.returncode == status and said in run.stderr and not run.stdout, run)

with Room() as room:
    with Program(room, TRAINING, "--wait", RANK=3, SLURM_JOB_ID='7"7', POD_NAME="pod-1", POD_NAMESPACE="team", CONTAINER_NAME="train") as first, \
            Program(room, TRAINING, "--wait") as second, \
            subprocess.Popen([GPUMEM, "serve", "--prometheus", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        check("two programs run", first.until("waiting") and second.until("waiting"))
        url = server.stdout.readline().strip()
        check("it says where it answers: on this machine alone", url.startswith("http://127.0.0.1:") and url.endswith("/metrics"), url)
        with open("/proc/%d/net/tcp" % server.pid, encoding="utf-8") as table:
            port = "%04X" % int(url.split(":")[2].split("/")[0])
            check("it listens at no other address", [row.split()[1] for row in table if row.split()[1].endswith(":" + port) and row.split()[3] == "0A"] ==
                  ["0100007F:" + port])
        status, kind, page = ask(url)
        check("the page is Prometheus' text format, to a strict reader", status == 200 and kind.startswith("text/plain; version=0.0.4") and
              len(prometheus.read(page)) > 12, (status, kind))
        mine = held(page, first.pid)
        check("labels of the environment", mine and {k: mine.get(k) for k in ("command", "rank", "job", "namespace", "pod", "container", "device")} ==
              {"command": "app_training", "rank": "3", "job": '7"7', "namespace": "team", "pod": "pod-1", "container": "train", "device": "0"}, mine)
        check("both processes are on the page", isinstance(held(page, second.pid), dict),
              [line for line in page.split("\n") if "unread" in line or "%d" % second.pid in line])
        status, kind, page = ask(url, Accept="application/openmetrics-text; version=1.0.0")
        check("OpenMetrics, if that is asked for", status == 200 and kind.startswith("application/openmetrics-text; version=1.0.0") and
              page.endswith("\n# EOF\n") and page.count("# EOF") == 1, (status, kind, page[-80:]))
        check("there a counter's head has no _total, and its lines have", "# TYPE gpumem_ooms counter\n" in page and "\ngpumem_ooms_total{" in page, page[:300])
        check("HEAD has no body", ask(url, "HEAD")[::2] == (200, ""))
        check("POST is refused", ask(url, "POST")[0] == 405)
        check("another path is none", ask(url + "x")[0] == 404 and ask(url.replace("metrics", ""))[0] == 200)
        with socket.create_connection(("127.0.0.1", int(port, 16))) as rude:
            rude.sendall(b"\0\xff GET\r\n\r\n" * 100)
            check("who speaks no HTTP does not keep others from an answer", ask(url)[0] == 200)
        # Who connects and does not ask: of these there may be more than the server keeps.
        idle = [socket.create_connection(("127.0.0.1", int(port, 16))) for _ in range(40)]
        for one in idle[20:]:
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        check("40 connections that do not ask, or not to the end: others are answered", ask(url)[0] == 200 and isinstance(held(ask(url)[2], first.pid), dict))
        idle[0].settimeout(30)
        idle[39].settimeout(0.2)
        check("the oldest of them was closed, and the newest was not", idle[0].recv(1) == b"" and open_still(idle[39]))
        for one in idle:
            one.close()
        # A page of another server's, whose name leads here.
        for name, status in (("evil.example", 403), ("127.0.0.1.evil.example:80", 403), ("localhost.evil.example", 403), ("", 403),
                             ("127.0.0.1", 200), ("localhost:1", 200), ("LOCALHOST", 200), ("[::1]:80", 200), ("10.1.2.3:80", 200), (socket.gethostname(), 200)):
            got = ask(url, Host=name)
            check("asked as %r: %d" % (name, status), got[0] == status and (status == 200) == ("gpumem_allocated_bytes{" in got[2]), got[:2])
        again = gpumem("serve", "--prometheus", "127.0.0.1:%d" % int(port, 16))
        check("a port that is taken: exit 1", again.returncode == 1 and "Address already in use" in again.stderr, again)
        second.kill()
        check("a process that ended is not on the page", held(ask(url)[2], second.pid) == [] and isinstance(held(ask(url)[2], first.pid), dict))
        server.terminate()
        check("SIGTERM ends it: exit 0", server.wait(30) == 0 and server.stderr.read() == "")
finish()
