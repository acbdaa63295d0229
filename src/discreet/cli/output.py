"""Output of commands: data on stdout, messages and progress on stderr, tables by rich on a terminal only."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from discreet.figures import place_name

SECONDS = 10.0  # between two lines of progress where there is no terminal
_COLOURS = {"holds": "green", "inconclusive": "yellow", "failed": "red", "refuted": "bold red"}  # on a terminal only

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")


def write_json(document: Any) -> None:
    """The data, as one JSON document on stdout; what is infinite is null."""
    click.echo(json.dumps(_finite(document), indent=2, allow_nan=False))


def talk(text: str = "") -> None:
    """A line for the person, on stderr; on a terminal in lines of its width, in which no word is cut."""
    click.echo(wrapped(text), err=True)


def wrapped(text: str) -> str:
    """Text as a terminal shows it, where stderr is one: long lines break between words, and a command can still be copied."""
    if not sys.stderr.isatty():
        return text
    import shutil
    import textwrap

    width = max(20, shutil.get_terminal_size().columns)
    fold = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False)
    return "\n".join(line if len(line) <= width else fold.fill(line) for line in text.split("\n"))


def tell_readings(columns: Mapping[str, str]) -> None:
    """How each column of a schema was read, for people to see before they pay."""
    for name, told in columns.items():
        talk(f"{name}: {told}")


def table(rows: Iterable[Sequence[str]], *, heads: Sequence[str] = ()) -> None:
    """A table on stdout: drawn by rich on a terminal, plain columns elsewhere."""
    cells = [list(row) for row in rows]
    if sys.stdout.isatty():
        _draw_table(cells, heads)
        return
    lines = [list(heads), *cells] if heads else cells
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))] if lines else []
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def _draw_table(cells: list[list[str]], heads: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    drawn = Table(box=None, show_header=bool(heads), pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    widths = _widths([list(heads), *cells] if heads else cells, console.width)
    for place in range(len(heads) or 2):
        width = widths[place] if place < len(widths) else None
        drawn.add_column(heads[place] if heads else "", overflow="fold", style="" if place else "bold", width=width)
    for row in cells:
        drawn.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    console.print(drawn)


def _widths(lines: Sequence[Sequence[str]], width: int) -> list[int | None]:
    """The widths of columns in which no word is cut, where there are any; what is left over goes to those that can use it.

    >>> _widths([["7-abc", "ten words"]], 40), _widths([["7-abc", "ten words"]], 16), _widths([["7-abc", "ten words"]], 8)
    ([5, 9], [5, 7], [None, None])
    """
    columns = len(lines[0]) if lines else 0
    least = [max((len(word) for line in lines for word in line[place].split()), default=0) for place in range(columns)]
    wanted = [max(max(len(line[place]) for line in lines), 1) for place in range(columns)]
    spare = width - sum(least) - 2 * columns
    if spare < 0:
        return [None] * columns
    for rest, place in enumerate(sorted(range(columns), key=lambda place: wanted[place] - least[place])):
        more = min(wanted[place] - least[place], spare // (columns - rest))
        least[place], spare = least[place] + more, spare - more
    return list(least)


@contextmanager
def progress(count: int, label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Something to call with (done, count): a bar on stderr where that is a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=count)
        drawn = 0

        def move(done: int, _: int) -> None:  # counts come in steps of any size
            nonlocal drawn
            if done >= count or done - drawn >= max(1, count // 100):
                drawn = done
                bar.update(task, completed=done)

        yield move


@contextmanager
def reported(count: int, label: str) -> Iterator[Callable[[int, int], None]]:
    """Something to call with (done, count): a bar on a terminal, elsewhere a line now and then with the time left.

    The time is told from what was seen to be done: the first call may count work of an earlier run, which took none here.
    """
    last = time.monotonic()
    first: tuple[float, int] | None = None

    def line(done: int, _: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = first or (now, done)
        if done < count and now - last >= SECONDS:
            last = now
            talk(f"{label}: {done} of {count}{_time_left(now - first[0], done - first[1], count - done)}")

    with progress(count, label) as bar:
        yield bar or line


def _time_left(seconds: float, done: int, rest: int) -> str:
    """What is left at the pace so far; nothing where no pace was seen.

    >>> _time_left(30.0, 10, 20), _time_left(30.0, 0, 20)
    (', about 60 s left', '')
    """
    return f", about {math.ceil(seconds / done * rest)} s left" if done > 0 and seconds > 0 else ""


def command_line(arguments: Sequence[str] | None = None) -> str:
    """A command with its options (this one unless told), as a release keeps it: file names without their folders."""
    words = sys.argv[1:] if arguments is None else arguments
    return " ".join(["discreet", *map(_without_folders, words)])[:500]


def _without_folders(word: str) -> str:
    name, sign, value = word.partition("=") if word.startswith("--") and "=" in word else ("", "", word)
    return f"{name}{sign}{place_name(value)}"


def counted(number: int, noun: str) -> str:
    """A number of things, as people write it.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
