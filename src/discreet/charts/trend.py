"""The trend over versions: true-positive rates of attacks with intervals, under the claimed ceilings."""

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
    highs = [version.found[2] for version in versions if version.found]
    highs += [version.most for version in versions if version.most is not None]
    frame = Frame((0.5, len(versions) + 0.5), (0.0, min(max([*highs, level]) * 1.08, 1.0)), height=270)
    body = frame.axes(across="version, oldest first", up=f"true positives at {rate(level)} false ones")
    for place, version in enumerate(versions, 1):
        if version.most is not None:
            body += line(
                f"M{frame.at((place - 0.4, version.most))} L{frame.at((place + 0.4, version.most))}", "ceiling", CEILING
            )
        if version.found is not None:
            value, low, high = version.found
            body += line(f"M{frame.at((place, low))} L{frame.at((place, high))}", "floor", FLOOR, 1.6)
            body += f'<circle class="dot floor" cx="{frame.x(place):.1f}" cy="{frame.y(value):.1f}" r="4" fill="{FLOOR}"/>'
    ends = "; ".join(map(_reached_in_words, [versions[0], *versions[1:][-1:]]))
    alt = f"{ends}. Lines are claims, dots attacks."
    rows = tuple((short(version.name, 60), *_cells(version)) for version in versions)
    drawn = picture(
        body, kind="chart trend", size=(frame.width, frame.height), title=title, description=alt, widest=1.25
    )  # fmt: skip
    return Plot(
        name="trend", title=title, svg=drawn, alt=alt, rows=rows,
        heads=("version", "ceiling: ε", f"allowed at {rate(level)}", f"reached at {rate(level)}"),
    )  # fmt: skip


def _reached_in_words(version: Version) -> str:
    epsilon, most, reached = _cells(version)
    claimed = f"ε {epsilon}, which allows {most}" if version.most is not None else "no ceiling"
    return f"{short(version.name, 40)}: {claimed}, and attacks reached {reached}"


def _cells(version: Version) -> tuple[str, str, str]:
    measured = version.found
    return (
        "none" if version.epsilon is None else up(version.epsilon),
        "100 %" if version.most is None else percent_up(version.most),
        "nothing: none was tried" if measured is None
        else f"{percent_down(measured[0])} ({percent_down(measured[1])} to {percent_up(measured[2])})",
    )  # fmt: skip
