"""`discreet demo`: a model that leaks, its private twin, questions in SQL, one budget, one report."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import CHECK_FAILED, COMMANDS, FINE
from discreet.cli.output import json_option, progress, talk, write_json
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.cli.diagnosis import Model
    from discreet.cli.hospital import Asked, People
    from discreet.core import Release
    from discreet.ledger import Ledger

NEEDS = {"torch": ("torch", "safetensors"), "sql": ("duckdb", "sqlglot", "pyarrow")}
LEFT_OUT = {"torch": "the two models and the attack on them", "sql": "the questions in SQL"}
RUNS = 20_000  # of the audits that stand in for the models where torch is not installed
EXPECTED = {"overfit-model": "no ceiling", "private-model": "holds", "count": "holds", "broken-count": "refuted"}
SURE = {"paired": 1 - 1e-6, "post_hoc": 0.999}  # verdicts of coins cry wolf once in a million runs; others cannot refute


@dataclass
class Story:
    """What happened, and the releases that were made, by name."""

    releases: dict[str, Release[Any]] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    served: str = ""  # what the web app must be told to go on from here

    def as_told(self) -> bool:
        """Whether the demo shows what it is meant to: every attack below its ceiling, and every leak found."""
        outcomes = {name: self.outcome(name) for name, it in self.releases.items() if it.evidence}
        return all(found == EXPECTED[name] for name, found in outcomes.items())

    def outcome(self, name: str) -> str:
        from discreet.audit import verdict

        release = self.releases[name]
        sure = SURE[release.evidence[0].design]
        return verdict(release.claims[0], release.evidence[0], confidence=sure).outcome


@click.command("demo", help=COMMANDS["demo"])
@click.option("-o", "--output", default="demo", show_default=True, metavar="FOLDER", help="Where to write everything.")
@click.option("--picture", metavar="FILE", help="Write the plot of both models to an SVG file, too.")
@json_option
@click.pass_context
def command(ctx: click.Context, output: str, picture: str | None, as_json: bool) -> None:
    from discreet.cli import served
    from discreet.cli.hospital import open_budget, people
    from discreet.ledger import Ledger

    if picture is not None and _missing("torch"):
        raise InvalidValue("The picture shows both models, which would be left out: pip install 'discreet[torch]'")
    folder = cleared(Path(output))
    story = Story()
    patients, strangers = people()
    talk(f"A hospital with {len(patients.age):,} patients, all of them made up, and one budget for everything made from them.")
    with Ledger(folder / "ledger.db") as ledger:
        open_budget(ledger)
        _models(story, patients, strangers, ledger, folder)
        _questions(story, patients, ledger)
        _write(story, folder, ledger)
    story.served = served.write(folder, patients, strangers, sql=bool(story.asked), models=bool(story.models))
    if picture is not None:
        _draw(story, picture)
    if as_json:
        write_json(_document(story, folder))
    else:
        _tell(story, folder)
    ctx.exit(FINE if story.as_told() else CHECK_FAILED)


def cleared(folder: Path) -> Path:
    """The folder, without the ledger of an earlier demo; anyone else's ledger is left alone."""
    from discreet.cli.hospital import SOURCE
    from discreet.ledger import Ledger

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"The folder {str(folder)!r} cannot be made: {error.strerror}.") from None
    place = folder / "ledger.db"
    if place.exists():
        with Ledger(place) as found:
            others = sorted(set(found.sources()) - {SOURCE})
        if others:
            raise InvalidValue(f"{place} has a budget of {others[0]!r}: it is not the demo's. Name another folder: -o FOLDER.")
        for each in folder.glob("ledger.db*"):
            each.unlink()
    return folder


def _has(story: Story, extra: str) -> bool:
    """Whether an extra is installed; if not, what is left out is told, and how to get it."""
    missing = _missing(extra)
    if missing:
        told = f"{LEFT_OUT[extra]} (no {missing[0]} here: pip install 'discreet[{extra}]')"
        story.left_out.append(told)
        talk(f"Left out: {told}.")
    return not missing


def _missing(extra: str) -> list[str]:
    return [name for name in NEEDS[extra] if find_spec(name) is None]


def _models(story: Story, patients: People, strangers: People, ledger: Ledger, folder: Path) -> None:
    if not _has(story, "torch"):
        from discreet.cli.counting import count

        talk("Instead a count with noise is audited, and a broken twin of it.")
        with progress(2 * RUNS, "auditing") as step:
            story.releases["count"], story.releases["broken-count"] = count(patients, ledger, RUNS, step)
        return
    import torch

    from discreet.cli import diagnosis

    torch.set_num_threads(1)  # the networks are so small that several threads would only wait for each other
    talk("A network learns their diagnoses by heart; an attacker who trains models like it asks who was among its patients.")
    with progress(diagnosis.SHADOWS, "attacking the overfit model") as step:
        leaky = diagnosis.overfit(patients, strangers, ledger, folder / "overfit-model", step)
    talk("The same network is trained privately, and attacked again by models trained as it was.")
    with progress(diagnosis.SHADOWS, "attacking the private model") as step:
        private = diagnosis.controlled(diagnosis.private(patients, strangers, ledger, folder / "private-model", step), leaky)
    story.models = {"overfit-model": leaky, "private-model": private}
    story.releases.update({name: it.release for name, it in story.models.items()})


def _questions(story: Story, patients: People, ledger: Ledger) -> None:
    if not _has(story, "sql"):
        return
    from discreet.cli.hospital import ask

    talk("Analysts ask in SQL until the budget is spent.")
    story.asked, answers = ask(patients, ledger)
    story.releases.update({f"answer-{i}": it for i, it in enumerate(answers, 1)})


def _write(story: Story, folder: Path, ledger: Ledger) -> None:
    """A model's release lies in the folder with its weights, any other in a file by its name."""
    from discreet import report

    for name, release in story.releases.items():
        release.save(folder / name / "release.json" if name in story.models else folder / f"{name}.json")
    report.write(list(story.releases.values()), folder / "report.html", ledger=ledger, title="The made-up hospital")


def _draw(story: Story, file: str) -> None:
    from discreet.cli.picture import picture
    from discreet.core.document import write_whole

    write_whole(file, picture(*(it.release for it in story.models.values())))


def _document(story: Story, folder: Path) -> dict[str, Any]:
    from discreet.cli.hospital import LEVEL

    models = {
        name: {"accuracy": list(it.right), "fpr": LEVEL, "tpr": it.reached, "refusal": it.refusal}
        for name, it in story.models.items()
    }
    return {
        "models": models, "questions": [asdict(it) for it in story.asked], "left_out": story.left_out,
        "outcomes": {name: story.outcome(name) for name, it in story.releases.items() if it.evidence},
        "files": {"report": str(folder / "report.html"), "ledger": str(folder / "ledger.db")},
    }  # fmt: skip


def _tell(story: Story, folder: Path) -> None:
    for number, line in enumerate(_lines(story, folder), 1):
        click.echo(f"{number}. {line}")


def _lines(story: Story, folder: Path) -> list[str]:
    lines = _of_models(story) if story.models else _of_counts(story)
    if story.asked:
        answers = [f"{it.text} {it.answer}." for it in story.asked if it.refusal is None]
        lines.append(f"{len(answers)} questions in SQL were answered. {' '.join(answers)}")
        lines += [f"The next was refused: {it.refusal}" for it in story.asked if it.refusal]
    program = sys.argv[0] if sys.argv[0].endswith("discreet") and not which("discreet") else "discreet"
    serve = f"{program} serve --ledger {folder / 'ledger.db'} --releases {folder} {story.served}"
    return [*lines, f"Read {folder / 'report.html'}; then open the rest in a browser: {serve}"]


def _of_models(story: Story) -> list[str]:
    from discreet.accounting import curve
    from discreet.cli.diagnosis import EPSILON
    from discreet.cli.hospital import DELTA, LEVEL
    from discreet.figures import percent_down, percent_up

    leaky, private = story.models.values()
    ceiling = percent_up(curve(private.release.claims[0].event).power(LEVEL))
    right = [f"right on {percent_down(it.right[0])} of its patients and {percent_down(it.right[1])} of strangers"
             for it in (leaky, private)]  # fmt: skip
    return [
        f"The overfit model is {right[0]}; at {LEVEL:.0%} false alarms an attack finds {percent_down(leaky.reached)} of its "
        "patients. It has no ceiling, and the ledger refused to pay for it.",
        f"The private model (epsilon {EPSILON:g} at delta {DELTA:g}) is {right[1]}; no attack can find more than "
        f"{ceiling}, and the same one finds {percent_down(private.reached)}.",
    ]


def _of_counts(story: Story) -> list[str]:
    return [
        f"A count of patients with noise: {story.releases['count'].value}; its claim {story.outcome('count')}.",
        f"The same count with half the noise it claims: {story.outcome('broken-count')}.",
    ]
