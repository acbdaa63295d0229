"""`discreet demo`: a claim, an attack under it and a broken twin above it, on one page."""

from __future__ import annotations

from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import CHECK_FAILED, COMMANDS, FINE
from discreet.cli.output import json_option, progress, table, talk, write_json

if TYPE_CHECKING:
    from discreet.cli.hospital import Asked, Attacked
    from discreet.core import Curve, Evidence, Release, Verdict

SCALE = Fraction(1)
CONFIDENCE = 1 - 1e-6  # a demo that cries wolf once in a million runs


@click.command("demo", help=COMMANDS["demo"])
@click.option("-o", "--output", default="out/demo.html", show_default=True, metavar="FILE", help="Where to write the page.")
@click.option("--runs", default=60_000, show_default=True, type=click.IntRange(1_000, 10_000_000), help="Runs of each audit.")
@json_option
@click.pass_context
def command(ctx: click.Context, output: str, runs: int, as_json: bool) -> None:
    from discreet.cli.counting import half_noise, honest

    page = Path(output)
    _make_folder(page.parent)
    talk("A clinic publishes how many of its visitors tested positive, with noise added. The rows are made up.")
    sound, fair = _audited(honest(SCALE), runs, "auditing the count")
    broken, foul = _audited(half_noise(SCALE), runs, "auditing its broken twin")
    files = {"page": page, "release": page.with_name("release.json"), "broken": page.with_name("broken.json")}
    sound.save(files["release"])
    broken.save(files["broken"])
    asked, attacked = _hospital()
    _write_page(page, sound, broken, (fair, foul), runs, asked, attacked)
    if as_json:
        found = {"honest": fair.to_json(), "broken": foul.to_json(), "runs": runs}
        found["questions"] = [asdict(item) for item in asked]
        found["reconstruction"] = asdict(attacked) if attacked else None
        write_json({**found, "files": {name: str(path) for name, path in files.items()}})
    else:
        _tell(fair, foul, files, asked, attacked)
    ctx.exit(FINE if (fair.outcome, foul.outcome) == ("holds", "refuted") else CHECK_FAILED)


def _make_folder(folder: Path) -> None:
    from discreet.errors import InvalidValue

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"The folder {str(folder)!r} cannot be made: {error.strerror}.") from None


def _audited(mechanism: Any, runs: int, label: str) -> tuple[Release[int], Verdict]:
    """One release of the count, the attack's evidence beside it, and the verdict."""
    from discreet.audit import Pair, audit, verdict
    from discreet.cli.counting import TARGET, Threshold, visitors
    from discreet.core import Release

    there = [*visitors(), TARGET]
    with progress(runs, label) as step:
        evidence = audit(mechanism, Threshold(), Pair(there, visitors(), TARGET), runs=runs, progress=step)
    claims = mechanism.claims()
    made = Release(value=mechanism.run(there), source="clinic (made up)", claims=claims, evidence=(evidence,))
    return made, verdict(claims[0], evidence, confidence=CONFIDENCE)


def _hospital() -> tuple[list[Asked], Attacked | None]:
    """Private SQL on a made-up hospital, and an attack on its answers; nothing where SQL is not installed."""
    from discreet.cli import hospital
    from discreet.errors import MissingExtra

    try:
        talk("A hospital answers three questions in SQL from a budget; the fourth does not fit. Then its answers are attacked.")
        return hospital.ask(), hospital.attack()
    except MissingExtra as error:
        talk(f"The questions in SQL are left out: {error}")
        return [], None


def _tell(fair: Verdict, foul: Verdict, files: dict[str, Path], asked: list[Asked], attacked: Attacked | None) -> None:
    from discreet.core.figures import down, rate, up

    sure = rate(CONFIDENCE)
    rows = [
        (name, f"epsilon {up(found.ceiling)}", f"epsilon {down(found.floor)}", found.outcome)
        for name, found in (("the count", fair), ("its twin, with half the noise", foul))
    ]
    table(rows, heads=("mechanism", "claims at most", "attack proves at least", "verdict"))
    talk(f"The verdicts are {sure} sure: at most one false alarm in a million.")
    if attacked:
        lines = [(item.text, "refused" if item.refusal else "; ".join(" ".join(row) for row in item.rows)) for item in asked]
        table([(*line, f"{item.left:.1f}") for line, item in zip(lines, asked)], heads=("question", "answer", "epsilon left"))
        talk(f"Secrets rebuilt from exact counts: {attacked.exact:.0%}; from private ones: {attacked.noisy:.0%} (a coin: 50%).")
    talk(f"The page:    {files['page']}")
    talk(f"Its release: {files['release']}    (try: discreet show {files['release']})")
    talk(f"The twin's:  {files['broken']}    (try: discreet audit {files['broken']}; echo $?)")


def _write_page(
    page: Path, honest: Release[int], broken: Release[int], verdicts: tuple[Verdict, Verdict], runs: int, asked: list[Asked],
    attacked: Attacked | None,
) -> None:  # fmt: skip
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from discreet import __version__
    from discreet.accounting import curve
    from discreet.cli.counting import positives, visitors
    from discreet.core.document import write_whole
    from discreet.core.figures import down, percent_down, percent_up, rate, up

    shown = Environment(loader=PackageLoader("discreet.cli"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    for name, format_number in {"percent_up": percent_up, "percent_down": percent_down, "rate": rate}.items():
        shown.filters[name] = lambda value, write=format_number: write(value).replace(" ", "\N{NO-BREAK SPACE}")
    shown.filters.update(up=up, down=down)
    ceiling = curve(honest.claims[0].event)
    text = shown.get_template("demo.html").render(
        version=__version__, runs=runs, confidence=CONFIDENCE, scale=SCALE, rows=visitors(), count=positives(visitors()),
        honest=honest, broken=broken, fair=verdicts[0], foul=verdicts[1], curve=ceiling,
        wide=_plot(ceiling, honest.evidence[0], broken.evidence[0], _WIDE, 760, 560),
        narrow=_plot(ceiling, honest.evidence[0], broken.evidence[0], _NARROW, 350, 400),
        asked=asked, attacked=attacked,
        levels=[_reached(ceiling, honest.evidence[0], broken.evidence[0], level) for level in (0.001, 0.01, 0.1)],
    )  # fmt: skip
    write_whole(page, text)


_WIDE = ("attack on the broken twin", "ceiling: what is claimed", "attack on the count")
_NARROW = ("the broken twin", "the ceiling", "the count")


def _plot(ceiling: Curve, fair: Evidence, foul: Evidence, labels: tuple[str, str, str], width: int, height: int) -> str:
    from discreet.core.card import attack_line, ceiling_line
    from discreet.core.svg import tradeoff_plot

    lines = [
        replace(attack_line(foul, labels[0], "broken"), band=_band(foul)),
        ceiling_line(ceiling, labels[1]),
        replace(attack_line(fair, labels[2]), band=_band(fair)),
    ]
    told = (
        "On log scales, the attack on the count runs along the claimed ceiling, as close as chance allows; "
        "the attack on the broken twin runs above it, where the claim says that no attack can be."
    )
    return tradeoff_plot(lines, title="The claim and two attacks", description=told, width=width, height=height)


def _band(evidence: Evidence) -> list[tuple[float, float, float]]:
    """Where the attack's true curve may lie: 95 % Clopper-Pearson intervals on both rates of every threshold."""
    import numpy as np

    from discreet.audit.binomial import rate_ceiling, rate_floor
    from discreet.core.card import FEWEST, roc
    from discreet.core.svg import levels

    false, true = roc(evidence.score, evidence.inside)
    members = int(evidence.inside.sum())
    others = len(evidence) - members
    alarms, hits, alpha = np.rint(false * others), np.rint(true * members), 0.025
    grid = [level for level in levels() if level * others >= FEWEST]
    low = np.interp(grid, rate_ceiling(alarms, others, alpha), rate_floor(hits, members, alpha))
    high = np.interp(grid, rate_floor(alarms, others, alpha), rate_ceiling(hits, members, alpha))
    return list(zip(grid, low.tolist(), high.tolist()))


def _reached(ceiling: Curve, fair: Evidence, foul: Evidence, level: float) -> dict[str, Any]:
    import numpy as np

    from discreet.core.card import roc

    measured = [float(np.interp(level, *roc(item.score, item.inside))) for item in (fair, foul)]
    return {"level": level, "ceiling": ceiling.power(level), "honest": measured[0], "broken": measured[1]}
