"""The picture of many versions: what attacks reached at one false-positive rate, with intervals, under what was claimed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from discreet.charts.frame import CEILING, FLOOR, Frame, line, picture
from discreet.charts.plots import Plot
from discreet.errors import InvalidValue
from discreet.figures import percent_down, percent_up, rate, short, up


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of something released: its name, epsilon and largest true-positive rate by its claim, and what was measured.

    `epsilon` and `most` are None where nothing is claimed, `found` where nothing was measured: a rate, and its interval.
    """

    name: str
    epsilon: float | None = None
    most: float | None = None
    found: tuple[float, float, float] | None = None


def trend(versions: Sequence[Version], *, level: float = 0.01, title: str = "What attacks reached, version by version") -> Plot:
    """True positives at the false-positive rate `level`, oldest version first; the claim of each is drawn as a step above."""
    if not versions:
        raise InvalidValue("versions holds nothing; there is nothing to draw.")
    highs = [each.found[2] for each in versions if each.found] + [each.most for each in versions if each.most is not None]
    frame = Frame((0.5, len(versions) + 0.5), (0.0, min(max([*highs, level]) * 1.08, 1.0)), height=270)
    body = frame.axes(across="version, oldest first", up=f"true positives at {rate(level)} false ones")
    for place, each in enumerate(versions, 1):
        if each.most is not None:
            body += line(f"M{frame.at((place - 0.4, each.most))} L{frame.at((place + 0.4, each.most))}", "ceiling", CEILING)
        if each.found is not None:
            value, low, high = each.found
            body += line(f"M{frame.at((place, low))} L{frame.at((place, high))}", "floor", FLOOR, 1.6)
            body += f'<circle class="dot floor" cx="{frame.x(place):.1f}" cy="{frame.y(value):.1f}" r="4" fill="{FLOOR}"/>'
    alt = f"{_told(versions[0])}{f'; {_told(versions[-1])}' if len(versions) > 1 else ''}. Lines are claims, dots attacks."
    rows = tuple((short(each.name, 60), *_cells(each)) for each in versions)
    drawn = picture(
        body, kind="chart trend", size=(frame.width, frame.height), title=title, description=alt, widest=1.25
    )  # fmt: skip
    return Plot(
        name="trend", title=title, svg=drawn, alt=alt, rows=rows,
        heads=("version", "ceiling: ε", f"allowed at {rate(level)}", f"reached at {rate(level)}"),
    )  # fmt: skip


def _told(version: Version) -> str:
    epsilon, most, found = _cells(version)
    claimed = f"ε {epsilon}, which allows {most}" if version.most is not None else "no ceiling"
    return f"{short(version.name, 40)}: {claimed}, and attacks reached {found}"


def _cells(version: Version) -> tuple[str, str, str]:
    found = version.found
    return (
        "none" if version.epsilon is None else up(version.epsilon),
        "100 %" if version.most is None else percent_up(version.most),
        "nothing: none was tried" if found is None
        else f"{percent_down(found[0])} ({percent_down(found[1])} to {percent_up(found[2])})",
    )  # fmt: skip
