"""The demonstration from beginning to end, and its summary."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.demo.hospital import DELTA, LEVEL, SOURCE, Answered, Cohort, ask, cohorts, open_budget
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.core import Release
    from discreet.demo.diagnosis import Model
    from discreet.ledger import Ledger

NEEDS = {"torch": ("torch", "safetensors"), "sql": ("duckdb", "sqlglot", "pyarrow")}
LEFT_OUT = {"torch": "the two models and the attack on them", "sql": "the synthetic table and the questions in SQL"}
RUNS = 20_000  # of the audits that replace the models where torch is not installed
EXPECTED = {
    "overfit-model": "no ceiling", "private-model": "holds", "count": "holds", "broken-count": "refuted",
    "synthetic-table": "holds",
}  # fmt: skip
CONFIDENCE = {
    "paired": 1 - 1e-6,
    "canary": 1 - 1e-6,
    "post_hoc": 0.999,
}  # one false alarm in a million audits; post_hoc never refutes

Step = Callable[[int, int], None]
Progress = Callable[[int, str], AbstractContextManager[Step | None]]


@dataclass
class Story:
    """What happened, and the releases by name."""

    folder: Path
    releases: dict[str, Release[Any]] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    questions: list[Answered] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    serve_options: str = ""  # the options with which `discreet serve` continues from here

    def as_expected(self) -> bool:
        """Whether every attack stayed below its ceiling, and every leak was detected."""
        return all(self.outcome(name) == EXPECTED[name] for name, release in self.releases.items() if release.evidence)

    def outcome(self, name: str) -> str:
        """The verdict on a release that has evidence."""
        from discreet.audit import verdict

        release = self.releases[name]
        confidence = CONFIDENCE[release.evidence[0].design]
        return verdict(release.claims[0], release.evidence[0], confidence=confidence).outcome

    def to_json(self) -> dict[str, Any]:
        models = {
            name: {"accuracy": list(model.accuracy), "fpr": LEVEL, "tpr": model.tpr, "refusal": model.refusal}
            for name, model in self.models.items()
        }
        return {
            "models": models, "questions": [asdict(question) for question in self.questions], "left_out": self.left_out,
            "outcomes": {name: self.outcome(name) for name, release in self.releases.items() if release.evidence},
            "files": {"report": str(self.folder / "report.html"), "ledger": str(self.folder / "ledger.db")},
        }  # fmt: skip

    def lines(self, program: str) -> list[str]:
        """The story in a few sentences; `program` is the command that starts discreet."""
        lines = self._model_lines() if self.models else self._count_lines()
        lines += self._table_lines()
        if self.questions:
            answers = [f"{question.text} {question.answer}." for question in self.questions if question.refusal is None]
            lines.append(f"{len(answers)} questions in SQL were answered. {' '.join(answers)}")
            ledger = f"--ledger {self.folder / 'ledger.db'}"  # completes the command with which the refusal ends
            lines += [f"The next was refused: {question.refusal} {ledger}" for question in self.questions if question.refusal]
        serve = f"{program} serve --ledger {self.folder / 'ledger.db'} --releases {self.folder} {self.serve_options}"
        return [*lines, f"Read {self.folder / 'report.html'}; then open the rest in a browser: {serve}"]

    def _model_lines(self) -> list[str]:
        from discreet.accounting import curve
        from discreet.figures import percent_down, percent_up, up

        overfit, private = self.models.values()
        claimed = curve(private.release.claims[0].event)
        spent = f"epsilon {up(claimed.epsilon(DELTA))} at delta {up(DELTA)}"
        ceiling = percent_up(claimed.power(LEVEL))
        right = [
            f"right on {percent_down(model.accuracy[0])} of its patients and {percent_down(model.accuracy[1])} of strangers"
            for model in (overfit, private)
        ]
        return [
            f"The overfit model is {right[0]}; at {LEVEL:.0%} false alarms an attack finds {percent_down(overfit.tpr)} of its "
            "patients. It has no ceiling, and the ledger refused to pay for it.",
            f"The private model ({spent}) is {right[1]}; no attack can find more than "
            f"{ceiling}, and the same one finds {percent_down(private.tpr)}.",
        ]

    def _table_lines(self) -> list[str]:
        from discreet.accounting import curve
        from discreet.figures import percent_up, up

        release = self.releases.get("synthetic-table")
        if release is None:
            return []
        epsilon = up(curve(release.claims[0].event).epsilon(DELTA))  # as the ledger counts, and the report tells
        near = release.facts["owner_fidelity"]["means"]["2"]
        return [
            f"A synthetic table (epsilon {epsilon} at delta {up(DELTA)}) is in {self.folder / 'synthetic-table'}. Pairs "
            f"of its columns are {percent_up(near)} away from those of the patients; against made-up rows in one more fit its "
            f"claim {self.outcome('synthetic-table')}."
        ]

    def _count_lines(self) -> list[str]:
        return [
            f"A count of patients with noise: {self.releases['count'].value}; its claim {self.outcome('count')}.",
            f"The same count with half the noise it claims: {self.outcome('broken-count')}.",
        ]


def run(folder: Path, *, picture: str | None = None, tell: Callable[[str], None], progress: Progress) -> Story:
    """Run the demonstration in a folder. `tell` is given a sentence per step, `progress` a count and a label."""
    from discreet.demo import web
    from discreet.ledger import Ledger

    if picture is not None and _missing("torch"):
        raise InvalidValue("The picture shows both models, which would be left out: pip install 'discreet-privacy[torch]'")
    story = Story(cleared(folder))
    patients, strangers = cohorts()
    tell(f"A hospital with {len(patients.age):,} patients, all of them made up, and one budget for everything made from them.")
    with Ledger(folder / "ledger.db") as ledger:
        open_budget(ledger)
        _models(story, patients, strangers, ledger, tell, progress)
        _tables(story, patients, strangers, ledger, tell)
        _questions(story, patients, ledger, tell)
        _write(story, ledger)
    story.serve_options = web.write(folder, patients, strangers, sql=bool(story.questions), models=bool(story.models))
    if picture is not None:
        _draw(story, picture)
    return story


def cleared(folder: Path) -> Path:
    """The folder, without the ledger of an earlier demo; a ledger with other sources is left alone."""
    from discreet.ledger import Ledger

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"The folder {str(folder)!r} cannot be made: {error.strerror}.") from None
    file = folder / "ledger.db"
    if file.exists():
        with Ledger(file) as ledger:
            others = sorted(set(ledger.sources()) - {SOURCE})
        if others:
            raise InvalidValue(f"{file} has a budget of {others[0]!r}: it is not the demo's. Name another folder: -o FOLDER.")
        for part in folder.glob("ledger.db*"):
            part.unlink()
    return folder


def _installed(story: Story, extra: str, tell: Callable[[str], None]) -> bool:
    """Whether an extra is installed; if it is not, the story says what is left out and how to get it."""
    missing = _missing(extra)
    if missing:
        reason = f"{LEFT_OUT[extra]} (no {missing[0]} here: pip install 'discreet-privacy[{extra}]')"
        story.left_out.append(reason)
        tell(f"Left out: {reason}.")
    return not missing


def _missing(extra: str) -> list[str]:
    return [name for name in NEEDS[extra] if find_spec(name) is None]


def _models(
    story: Story, patients: Cohort, strangers: Cohort, ledger: Ledger, tell: Callable[[str], None], progress: Progress
) -> None:
    if not _installed(story, "torch", tell):
        from discreet.demo.counting import count

        tell("Instead a count with noise is audited, and a control with half of that noise.")
        with progress(2 * RUNS, "auditing") as step:
            story.releases["count"], story.releases["broken-count"] = count(patients, ledger, RUNS, step)
        return
    import torch

    from discreet.demo import diagnosis

    torch.set_num_threads(1)  # the networks are so small that more threads would only wait for each other
    tell("A network memorises their diagnoses; an attacker who trains models like it asks who was among its patients.")
    with progress(diagnosis.SHADOWS, "attacking the overfit model") as step:
        overfit = diagnosis.overfit(patients, strangers, ledger, story.folder / "overfit-model", step)
    tell("The same network is trained privately, and attacked again by models trained as it was.")
    with progress(diagnosis.SHADOWS, "attacking the private model") as step:
        private = diagnosis.private(patients, strangers, ledger, story.folder / "private-model", step)
    story.models = {"overfit-model": overfit, "private-model": diagnosis.with_control(private, overfit)}
    story.releases.update({name: model.release for name, model in story.models.items()})


def _tables(story: Story, patients: Cohort, strangers: Cohort, ledger: Ledger, tell: Callable[[str], None]) -> None:
    if not _installed(story, "sql", tell):
        return
    from discreet.demo.synthetic import synthesise

    tell("A synthetic table is made in place of the real one, and attacked.")
    story.releases["synthetic-table"] = synthesise(patients, strangers, ledger, story.folder / "synthetic-table")


def _questions(story: Story, patients: Cohort, ledger: Ledger, tell: Callable[[str], None]) -> None:
    if _missing("sql"):
        return
    tell("Analysts ask in SQL until the budget is spent.")
    story.questions, answers = ask(patients, ledger)
    story.releases.update({f"answer-{number}": answer for number, answer in enumerate(answers, 1)})


def _write(story: Story, ledger: Ledger) -> None:
    """A release is in the folder of its model or table, or else a file of its own."""
    from discreet import report

    folder = story.folder
    for name, release in story.releases.items():
        release.save(folder / name / "release.json" if (folder / name).is_dir() else folder / f"{name}.json")
    report.write(list(story.releases.values()), folder / "report.html", ledger=ledger, title="The made-up hospital")


def _draw(story: Story, file: str) -> None:
    from discreet.core.document import write_whole
    from discreet.demo.picture import picture

    write_whole(file, picture(*(model.release for model in story.models.values())))
