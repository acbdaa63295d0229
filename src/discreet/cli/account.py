"""`discreet account`: from what ran to what it gives away at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, table, talk, write_json
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.core import Curve, Event

_DELTAS = (1e-5, 1e-6, 1e-9)
_LEVELS = (0.001, 0.01)
_PRIORS = (0.01, 0.1, 0.5)


@click.group("account", help=COMMANDS["account"])
def command() -> None: ...


def common(function: Callable[..., None]) -> Callable[..., None]:
    """What every subcommand takes."""
    for option in (
        json_option,
        click.option("--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Draw the curve into an SVG file."),
        click.option(
            "--delta", "deltas", type=float, multiple=True, metavar="D", help="Show epsilon at this delta; repeatable."
        ),
    ):
        function = option(function)
    return function


def noise(function: Callable[..., None]) -> Callable[..., None]:
    """Noise that is given, or found for a target."""
    for option in (
        click.option("--epsilon", type=float, metavar="E", help="Find the least noise for this epsilon at --delta."),
        click.option("--noise", type=float, metavar="M", help="Noise multiplier: its scale over the sensitivity."),
    ):
        function = option(function)
    return function


times = click.option("--times", type=int, default=1, show_default=True, metavar="N", help="How often it ran, with fresh noise.")


@command.command("gaussian")
@noise
@times
@common
def gaussian(noise: float | None, epsilon: float | None, times: int, **rest: Any) -> None:
    """Gaussian noise of standard deviation M times the l2 sensitivity."""
    from discreet.accounting import Gaussian

    _account(lambda multiplier: _repeated(Gaussian(multiplier), times), noise, epsilon, **rest)


@command.command("laplace")
@noise
@times
@common
def laplace(noise: float | None, epsilon: float | None, times: int, **rest: Any) -> None:
    """Laplace noise of scale M times the l1 sensitivity."""
    from discreet.accounting import Laplace

    _account(lambda multiplier: _repeated(Laplace(multiplier), times), noise, epsilon, **rest)


@command.command("sgd")
@noise
@click.option("--rate", type=float, required=True, metavar="Q", help="Probability that a step's Poisson sample takes a unit.")
@click.option("--steps", type=int, required=True, metavar="T", help="Number of steps.")
@click.option(
    "--relation",
    type=click.Choice(["add_remove", "replace", "zero_out"]),
    default="add_remove",
    show_default=True,
    help="How the two worlds differ in one unit.",
)
@common
def sgd(noise: float | None, epsilon: float | None, rate: float, steps: int, relation: str, **rest: Any) -> None:
    """Private gradient descent: T steps of Gaussian noise on Poisson samples. Not for shuffled batches."""
    from discreet.accounting import Gaussian, Poisson, PoissonReplace, Repeat

    kind = PoissonReplace if relation == "replace" else Poisson
    _account(lambda multiplier: Repeat(kind(rate, Gaussian(multiplier)), steps), noise, epsilon, **rest)


@command.command("event")
@click.argument("file", type=click.Path(allow_dash=True))
@common
def event(file: str, **rest: Any) -> None:
    """An event from a JSON FILE ("-" for stdin), such as {"kind": "gaussian", "noise_multiplier": 1.0}."""
    from discreet.audit.judge import ceiling_of
    from discreet.core import event_from_json
    from discreet.core.document import read_plain

    written = event_from_json(read_plain("/dev/stdin" if file == "-" else file))
    ceiling_of(written)  # refuses what would take minutes: a stranger may have written it
    _tell(written, **rest)


def _repeated(event: Event, times: int) -> Event:
    from discreet.accounting import Repeat

    return event if times == 1 else Repeat(event, times)


def _account(
    make: Callable[[float], Event], noise: float | None, epsilon: float | None, deltas: tuple[float, ...], **rest: Any
) -> None:
    if (noise is None) == (epsilon is None):
        raise click.UsageError("Give either --noise, or --epsilon (with --delta) to find the least noise for it.")
    if epsilon is not None:
        if len(deltas) != 1:
            raise click.UsageError(f"--epsilon needs exactly one --delta to go with it; got {len(deltas)}.")
        from discreet.accounting import calibrate

        noise = calibrate(make, epsilon=epsilon, delta=deltas[0])
    assert noise is not None
    _tell(make(noise), deltas=deltas, **rest)


def _tell(event: Event, *, deltas: tuple[float, ...], plot: str | None, as_json: bool) -> None:
    from discreet.accounting import curve

    tradeoff = curve(event)
    facts = _facts(event, tradeoff, deltas or _DELTAS)
    if as_json:
        write_json(facts)
    else:
        _print(event, tradeoff, facts)
    if plot:
        _draw(event, tradeoff, plot)


def _facts(event: Event, curve: Curve, deltas: tuple[float, ...]) -> dict[str, Any]:
    from discreet.core import relations
    from discreet.core.curve import belief_exception

    rare = belief_exception(curve)
    return {
        "event": event.to_json(),
        "relations": list(relations(event)),
        "epsilon": [{"delta": delta, "epsilon": curve.epsilon(delta)} for delta in deltas],
        "power": [{"false_positives": level, "true_positives": curve.power(level)} for level in _LEVELS],
        "posterior": [{"prior": prior, "except": rare, "posterior": curve.posterior(prior, rare)} for prior in _PRIORS],
    }


def _print(event: Event, curve: Curve, facts: dict[str, Any]) -> None:
    from functools import partial

    from discreet.charts import sketch
    from discreet.charts.curves import powers
    from discreet.figures import percent_up, rate, up

    rows = [("what ran", _short(event)), *_units(event)]
    rows += [("epsilon", f"{up(item['epsilon'])} at delta {up(item['delta'], 6)}") for item in facts["epsilon"]]
    rows += [
        (
            "power",
            f"at most {percent_up(item['true_positives'])} true positives at {rate(item['false_positives'])} false positives",
        )
        for item in facts["power"]
    ]
    rows += [
        (
            "belief",
            f"{rate(item['prior'])} becomes at most {percent_up(item['posterior'])} "
            f"(except with probability {item['except']:g})",
        )
        for item in facts["posterior"]
    ]
    table(rows)
    click.echo(f"\n{sketch(partial(powers, curve))}")
    click.echo("        true positives over false positives (●: the most any attack\n        reaches, ·: guessing)")


def _draw(event: Event, curve: Curve, path: str) -> None:
    from discreet.charts import ceiling_line, tradeoff_plot
    from discreet.charts.frame import on_paper
    from discreet.core.document import write_whole

    line = ceiling_line(curve, "the ceiling")
    told = f"The most true positives that any attack on {_short(event)} reaches, at every rate of false positives."
    if not path.endswith(".svg"):
        raise InvalidValue(f"--plot writes SVG; got {path!r}. Name the file something.svg.")
    write_whole(path, on_paper(tradeoff_plot([line], title=f"Trade-off of {event.kind}", description=told)))
    talk(f"The curve is drawn in {path}")


def _units(event: Event) -> list[tuple[str, str]]:
    """For which units the numbers hold, where that is not a matter of the sensitivity alone."""
    from discreet.core import relations

    said = {"add_remove": "added or removed", "replace": "replaced", "zero_out": "blanked out"}
    stated = relations(event)
    if len(stated) == len(said):
        return []
    return [("unit", " or ".join(said[each] for each in stated) or "none: its parts are for different relations")]


def _short(event: Event) -> str:
    text = repr(event)
    return text if len(text) <= 200 else f"{text[:197]}..."
