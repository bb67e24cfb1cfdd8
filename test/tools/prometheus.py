"""A strict reader of Prometheus' text format (version 0.0.4), written from its description: what node_exporter refuses, it refuses."""
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
VALUE = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|Inf|NaN)")
TYPES = ("counter", "gauge", "histogram", "summary", "untyped")


def need(condition, line, why):
    if not condition:
        raise ValueError("%s: %r" % (why, line))


def labels_of(text, line):
    """{name: value} of what stands between the braces, and what follows them."""
    found, at = {}, 1
    while text[at:at + 1] != "}":
        name = LABEL.match(text, at)
        need(name and not name.group().startswith("__"), line, "no label")
        need(text[name.end():name.end() + 2] == '="', line, "no value of a label")
        at, value = name.end() + 2, ""
        while text[at:at + 1] != '"':
            need(at < len(text), line, "a label without its end")
            if text[at] == "\\":
                need(text[at + 1:at + 2] in ("\\", '"', "n"), line, "an escape that is none")
                value += {"\\": "\\", '"': '"', "n": "\n"}[text[at + 1]]
                at += 2
            else:
                value += text[at]
                at += 1
        need(name.group() not in found, line, "a label twice")
        found[name.group()] = value
        at += 1
        if text[at:at + 1] == ",":
            at += 1
        else:
            need(text[at:at + 1] == "}", line, "neither a comma nor an end")
    return found, text[at + 1:]


def read(page):
    """{metric: (type, help, {((label, value), ...): number})}; ValueError on what breaks a rule."""
    need(page.endswith("\n"), page[-80:], "the last line does not end")
    metrics, closed, current = {}, set(), None
    for line in page[:-1].split("\n"):
        if not line:
            continue
        if line.startswith("#"):
            words = line.split(" ", 3)
            if len(words) < 3 or words[1] not in ("HELP", "TYPE"):
                continue
            need(NAME.fullmatch(words[2]), line, "no metric's name")
            if words[2] != current:
                need(words[2] not in metrics, line, "the lines of a metric do not stand together")
                closed.add(current)
                current = words[2]
                metrics[current] = [None, None, {}]
            slot = 0 if words[1] == "TYPE" else 1
            need(metrics[current][slot] is None, line, "said twice")
            need(not metrics[current][2], line, "said behind the first value")
            need(slot or words[3] in TYPES, line, "no type")
            metrics[current][slot] = words[3] if len(words) > 3 else ""
            continue
        name = NAME.match(line)
        need(name, line, "no metric's name")
        rest, labels = line[name.end():], {}
        if rest.startswith("{"):
            labels, rest = labels_of(rest, line)
        need(name.group() not in closed, line, "the lines of a metric do not stand together")
        if name.group() != current:
            closed.add(current)
            current = name.group()
            metrics.setdefault(current, ["untyped", None, {}])
        words = rest.split()
        need(rest.startswith(" ") and len(words) == 1 and VALUE.fullmatch(words[0]), line, "no number, or a time stamp")
        key = tuple(sorted(labels.items()))
        need(key not in metrics[current][2], line, "the same line twice")
        metrics[current][2][key] = float(words[0])
    for name, (kind, text, values) in metrics.items():
        need(kind is not None and text is not None, name, "a metric without its head")
        if kind == "counter":
            need(name.endswith("_total"), name, "a counter is called ..._total")
            need(all(v >= 0 for v in values.values()), name, "a counter below 0")
    return {name: tuple(entry) for name, entry in metrics.items()}
