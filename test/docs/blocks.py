"""The blocks of code of a page, line by line: each is taken by the test that runs it, and what nobody took fails the page's test."""
import re


class Blocks:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as text:
            self.text = text.read()
        self.blocks = re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.M | re.S)
        self.taken = set()

    def lines(self):
        """Commands: lines of shell blocks; of a block without a kind those behind "$ ", if it has such, since the rest is output."""
        found = []
        for kind, block in self.blocks:
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            if kind == "":
                lines = [line[2:] for line in lines if line.startswith("$ ")] or lines
            found += lines if kind in ("sh", "") else []
        return found

    def all(self, *words):
        """The commands that have all these words; the caller runs them."""
        found = [line for line in self.lines() if all(word in line for word in words)]
        self.taken.update(found)
        return found

    def one(self, *words):
        found = set(self.all(*words))
        assert len(found) == 1, "%s has %d commands with %s: %s" % (self.path, len(found), words, sorted(found))
        return found.pop()

    def block(self, kind):
        """The page's one block of this kind; the caller tries it."""
        found = [block for of, block in self.blocks if of == kind]
        assert len(found) == 1, "%s has %d blocks of %s" % (self.path, len(found), kind)
        self.taken.add(kind)
        return found[0]

    def left_to(self, test, call, *words):
        """What another test takes, as one("docker build"): does it say so in its source?"""
        getattr(self, call)(*words)
        said = "%s(%s)" % (call, ", ".join('"%s"' % word for word in words))
        with open(test, encoding="utf-8") as source:
            text = source.read()
        return 'Blocks("%s")' % self.path in text and "." + said in text

    def rest(self):
        """What nobody took."""
        return [line for line in self.lines() if line not in self.taken] + \
            sorted({kind for kind, _ in self.blocks if kind not in ("sh", "")} - self.taken)
