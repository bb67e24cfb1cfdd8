#!/usr/bin/env python3
"""Debian's Prometheus scrapes gpumem serve and evaluates docs/alerts.yml; promtool checks the rules and both formats; the dashboard
asks for metrics that there are. The page's systemd unit is one, and its questions are answered."""
# timeout: 300
import json
import os
import re
import socket
import subprocess
import sys
import urllib.parse
import urllib.request

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/docs")
from blocks import Blocks  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import Program, wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")


def sh(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url, **query):
    try:
        with urllib.request.urlopen(url + "?" + urllib.parse.urlencode(query), timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


ran = sh("promtool", "check", "rules", "docs/alerts.yml")
check("promtool takes the alerts", ran.returncode == 0 and re.search(r"SUCCESS: [1-9] rules found", ran.stdout), ran.stdout)
with open("docs/grafana.json", encoding="utf-8") as text:
    board = json.load(text)
asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
check("the dashboard has panels, each with a number, a place and a question", len(asked) > 5 and len(
    {panel["id"] for panel in board["panels"]}) == len(board["panels"]) and all(panel["gridPos"]["w"] <= 24 for panel in board["panels"]), asked)
FLEET = Blocks("docs/fleet.md")
config = FLEET.block("yaml")
questions = [line for line in FLEET.block("promql").splitlines() if line and not line.startswith("#")]

with Room() as room:
    unit = FLEET.block("ini").replace("/usr/local/bin/gpumem", GPUMEM)
    for what, text, said in (("the page's unit is one that systemd takes", unit, ""), ("and systemd would tell of a wrong one", unit.replace("Restart", "Restrat"), "Restrat"),
                             ("and of a program that is not there", unit.replace(GPUMEM, GPUMEM + "-not"), "gpumem-not")):
        with open(room.path + "/gpumem-textfile.service", "w", encoding="utf-8") as file:
            file.write(text)
        ran = sh("systemd-analyze", "verify", "--man=no", file.name)
        check(what, said in ran.stdout if said else ran.returncode == 0 and not ran.stdout, ran)

    with Program(room, TRAINING, "--wait", RANK=3, SLURM_JOB_ID="77") as job, \
            subprocess.Popen([GPUMEM, "serve", "--prometheus", "0"], stdout=subprocess.PIPE, text=True) as server:
        check("a program runs", job.until("waiting"))
        page = server.stdout.readline().strip()
        with urllib.request.urlopen(page, timeout=30) as answer:
            text = answer.read().decode()
        ran = sh("promtool", "check", "metrics", input=text)
        check("promtool has nothing to say about the page", ran.returncode == 0 and not ran.stdout, ran.stdout)
        port = free_port()
        target = page.split("/")[2]
        config = config.replace("127.0.0.1:9847", target).replace("alerts.yml", os.path.abspath("docs/alerts.yml"))
        with open(room.path + "/prometheus.yml", "w", encoding="utf-8") as file:
            file.write("global: { scrape_interval: 1s, evaluation_interval: 1s }\n" + config)
        ran = sh("promtool", "check", "config", room.path + "/prometheus.yml")
        check("promtool takes the page's configuration", ran.returncode == 0, ran.stdout)
        with open(room.path + "/log", "w", encoding="utf-8") as log, subprocess.Popen(
                ["prometheus", "--config.file=" + room.path + "/prometheus.yml", "--storage.tsdb.path=" + room.path + "/tsdb",
                 "--web.listen-address=127.0.0.1:%d" % port], stdout=log, stderr=log) as prometheus:
            api = "http://127.0.0.1:%d/api/v1/" % port

            def query(expr):
                data = get(api + "query", query=expr)
                return data["result"] if data else []

            mine = 'gpumem_allocated_bytes{pid="%d"}' % job.pid
            wait_for(lambda: query(mine), 60)
            found = query(mine)
            check("Prometheus has scraped it", len(found) == 1, (found, open(room.path + "/log", encoding="utf-8").read()[-600:]))
            labels = found[0]["metric"] if found else {}
            check("with our labels", labels.get("job") == "77" and labels.get("rank") == "3" and labels.get("command") == "app_training" and
                  labels.get("instance") == target, labels)
            value = re.search(r'^gpumem_allocated_bytes\{[^}]*pid="%d"[^}]*\} (\d+)$' % job.pid, text, re.M)
            check("and our figure", found and value and found[0]["value"][1] == value.group(1), (found, value))
            targets = get(api + "targets")
            check("the target is up", targets and targets["activeTargets"][0]["health"] == "up" and not targets["activeTargets"][0]["lastError"], targets)
            rules = get(api + "rules")
            wait_for(lambda: all(r["health"] == "ok" for g in get(api + "rules")["groups"] for r in g["rules"]), 60)
            rules = get(api + "rules")
            check("every alert is evaluated", rules and all(r["health"] == "ok" for g in rules["groups"] for r in g["rules"]), rules)
            names = set(re.findall(r"gpumem_\w+", " ".join(asked)))
            known = set(get(api + "label/__name__/values") or [])
            check("the dashboard's metrics are there", names and names <= known, names - known)
            for expr in asked:
                for variable, text_of in (("$instance", ".*"), ("$command", ".*"), ("$__rate_interval", "1m")):
                    expr = expr.replace(variable, text_of)
                wait_for(lambda e=expr: query(e), 30)       # a rate takes two scrapes
                check("the dashboard's question is answered: %s" % expr[:60], query(expr), (expr, query(expr)))
            check("the page has questions", len(questions) > 4, questions)
            for expr in questions:
                check("the page's question is one: %s" % expr[:60], get(api + "query", query=expr) is not None, expr)
            check("and one that is none would be refused", get(api + "query", query=questions[0] + ")") is None)
            prometheus.terminate()
        server.terminate()
finish()
