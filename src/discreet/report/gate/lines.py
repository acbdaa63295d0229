"""The line of each key of a TOML file, so that an error and an alert can point at it.

`tomllib` reads values and forgets where they were. This walks the same text once more, after `tomllib` has found it valid.
"""

from __future__ import annotations

import tomllib
from contextlib import suppress

Path = tuple[str | int, ...]
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def lines_of(text: str) -> dict[Path, int]:
    """The line of every key, table and item of an array in a valid TOML text, by its path.

    >>> lines_of('[[rule]]\\non = "claim"\\nepsilon = {max = 3}')[("rule", 0, "epsilon", "max")]
    3
    """
    walk = _Walk(text.replace("\r\n", "\n"))
    with suppress(IndexError, RecursionError):  # what was found so far is better than nothing
        walk.document()
    return walk.line_of


class _Walk:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text + "\n", 0, 1
        self.line_of: dict[Path, int] = {}
        self.lengths: dict[Path, int] = {}  # of arrays of tables

    def document(self) -> None:
        table: Path = ()
        self.skip(newlines=True)
        while self.at < len(self.text) - 1:
            table = self.header() if self.text[self.at] == "[" else self.pair(table)
            self.skip(newlines=True)

    def header(self) -> Path:
        """`[a.b]` or `[[a.b]]`: where the keys that follow belong."""
        start, several = self.line, self.text.startswith("[[", self.at)
        self.step(2 if several else 1)
        *outer, last = self.key()
        self.step(2 if several else 1)
        path: Path = ()
        for name in outer:
            path = self.latest((*path, name))
        if several:
            path = (*path, last)
            self.lengths[path] = self.lengths.get(path, 0) + 1
            self.line_of.setdefault(path, start)
            path = self.latest(path)
        else:
            path = self.latest((*path, last))
        self.line_of.setdefault(path, start)
        return path

    def latest(self, path: Path) -> Path:
        """The last table of an array of tables; any other path itself."""
        return (*path, self.lengths[path] - 1) if path in self.lengths else path

    def pair(self, table: Path) -> Path:
        """`a.b = value`; the table it stands in is given back."""
        start, path = self.line, table
        for name in self.key():
            path = (*path, name)
            self.line_of.setdefault(path, start)
        self.step(1)
        self.skip()
        self.value(path)
        return table

    def key(self) -> list[str]:
        names = []
        while True:
            self.skip()
            start = self.at
            if self.text[start] in "\"'":
                self.string()
                names.append(tomllib.loads(f"k = {self.text[start : self.at]}")["k"])
            else:
                while self.text[self.at] in _BARE:
                    self.step(1)
                names.append(self.text[start : self.at])
            self.skip()
            if self.text[self.at] != ".":
                return names
            self.step(1)

    def value(self, path: Path) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self.string()
        elif first == "{":
            self.several(path, "}")
        elif first == "[":
            self.several(path, "]")
        else:
            while self.text[self.at] not in ",]}#\n":
                self.step(1)

    def several(self, path: Path, end: str) -> None:
        """An inline table or an array."""
        self.step(1)
        count = 0
        while True:
            self.skip(newlines=True)
            if self.text[self.at] == end:
                self.step(1)
                return
            if self.text[self.at] == ",":
                self.step(1)
            elif end == "}":
                self.pair(path)
            else:
                self.line_of[(*path, count)] = self.line
                self.value((*path, count))
                count += 1

    def string(self) -> None:
        quote = self.text[self.at]
        end = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.step(len(end))
        while not self.text.startswith(end, self.at):
            self.step(2 if quote == '"' and self.text[self.at] == "\\" else 1)
        self.step(len(end))
        while len(end) == 3 and self.text[self.at] == quote:  # one or two quotes may stand before the closing three
            self.step(1)

    def skip(self, *, newlines: bool = False) -> None:
        while self.at < len(self.text) and self.text[self.at] in (" \t\n#" if newlines else " \t"):
            if self.text[self.at] == "#":
                while self.text[self.at] != "\n":
                    self.step(1)
            else:
                self.step(1)

    def step(self, count: int) -> None:
        if self.at >= len(self.text):
            raise IndexError
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count
