"""The verdict in one sentence that a manager understands; no epsilon in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from discreet.figures import percent_down, percent_up, rate
from discreet.report import text
from discreet.report.controls import blind

if TYPE_CHECKING:
    from discreet.audit import Appraisal
    from discreet.core import Unit
    from discreet.report.assessment import Assessment, Ceiling

# Worst first. `leaks`: nothing is promised, and an attack surely does better than guessing.
STATUSES = ("contradicted", "refuted", "warning", "leaks", "no ceiling", "inconclusive", "untested", "withheld",
            "holds")  # fmt: skip
MARKS = {
    "contradicted": "✕",
    "refuted": "✕",
    "warning": "!",
    "leaks": "!",
    "no ceiling": "∞",
    "inconclusive": "?",
    "untested": "○",
    "withheld": "◐",
    "holds": "✓",
}
RECOVERED = ("recreated", "encodings", "shares", "stealing", "descent", "extraction", "exposure", "inference", "risks")
_PEOPLE = {"user", "person", "patient", "customer", "student", "client", "participant", "member", "employee"}
_SAID = {  # of one release, and of several
    "contradicted": ("is not what it says it is", "are not what they say they are"),
    "refuted": ("broke the promise made for it", "broke the promises made for them"),
    "warning": ("gives cause for a warning", "give cause for a warning"),
    "leaks": ("has no ceiling, and attacks recognise its members", "have no ceiling, and attacks recognise their members"),
    "no ceiling": ("has no ceiling on what it gives away", "have no ceiling on what they give away"),
    "inconclusive": ("has a ceiling that was tested too little to tell", "have ceilings that were tested too little to tell"),
    "untested": ("has a ceiling that no attack has tested", "have ceilings that no attack has tested"),
    "withheld": (
        "has a ceiling, and what attacks reached is withheld from you",
        "have ceilings, and what attacks reached is withheld from you",
    ),
    "holds": ("stayed within its ceiling under attack", "stayed within their ceilings under attack"),
}
_LEVEL = 0.01  # the false-positive rate of sentences
_WEAK = 0.95  # a belief that may grow from a half to more than this is hardly limited


def indicative(assessment: Assessment) -> bool:
    """Whether no attack on which a verdict rests could have refuted a claim, since no coins decided who was inside."""
    return not any(not item.indicative and each.outcome == "holds" for item in assessment.floors for each in item.verdicts)


def recovered(assessment: Assessment) -> bool:
    """Whether attacks without a game were run, such as stealing: they leave facts, and no evidence."""
    return any(name in assessment.facts for name in RECOVERED)


def judged(assessment: Assessment) -> tuple[str, str]:
    """The status of a release and its sentence; what contradicts the release comes before what it says of itself."""
    if assessment.fault is not None:
        told = f"Do not rely on this release: {text.short(assessment.fault, 300)}."
        return "contradicted", f"{told} What it says of itself: {_told(assessment)[1]}"
    return _told(assessment)


def _told(assessment: Assessment) -> tuple[str, str]:
    status = _status(assessment)
    if status in ("leaks", "no ceiling"):
        told = _partly(assessment) if assessment.bounded else _unpromised(assessment)
        return status, told + _of_machine(assessment)
    if status == "refuted":
        return status, _refuted(assessment)
    if status == "warning":
        return status, _warned(assessment)
    return status, f"{_promise(_weakest(assessment.bounded))}; {_tested(assessment, status)}"


def _tested(assessment: Assessment, status: str) -> str:
    """What the attacks say of a promise that stands."""
    fitting = [item for item in assessment.floors if any(each.outcome == "holds" for each in item.verdicts)]
    kept, tried = _counted(len(fitting), "attack"), _counted(len(assessment.floors), "attack")
    rest = f" ({len(assessment.floors) - len(fitting)} more could not test it)" if len(assessment.floors) > len(fitting) else ""
    silent = {item.evidence.attack for item in fitting} & blind(assessment.release)
    if silent and not assessment.withheld:
        useless = sum(item.evidence.attack in silent for item in fitting)
        each = "it" if useless == len(fitting) == 1 else "all of them" if useless == len(fitting) else f"{useless} of them"
        rest += (
            f"; {each} found nothing even in a control, where there is something to find, so that their silence means nothing"
        )
    if any(note for item in assessment.floors for note in item.notes):
        rest += "; an interval at 95 % confidence lies above it, as up to one in twenty does where the promise is true"
    if status == "holds" and silent and len(silent) == len({item.evidence.attack for item in fitting}):
        return f"{kept} stayed within that{rest}: this rests on its proof alone."
    if status == "holds" and indicative(assessment):
        return f"{kept} on the finished release stayed within that{rest}, which is a good sign and no test."
    if status == "holds":
        return f"{kept} {'were' if len(fitting) > 1 else 'was'} tried and stayed within that{rest}."
    excess = next((item.evidence.attack for item in assessment.floors if any(item.excesses)), None)
    if excess is not None:
        return f"but the attack “{text.short(excess, 60)}” came out above that, with too few targets to be sure."
    if status == "inconclusive":
        return f"{tried} {'were' if len(assessment.floors) > 1 else 'was'} tried, with too few samples to test it."
    if assessment.withheld:
        return "attacks were run against it, and what they reached is withheld from you: owners and officers see it."
    if assessment.floors:
        return "no attack that was run can be compared with it, so this rests on its proof alone."
    return "no attack was run against it, so this rests on its proof alone."


def _warned(assessment: Assessment) -> str:
    name = text.short(next(item.evidence.attack for item in assessment.floors if item.outcome == "warning"), 60)
    return (
        f"A warning: against the finished release the attack “{name}” does better than the promise allows. That alone "
        "proves nothing, since who was inside was not decided by coins; have the promise audited before you rely on it."
    )


def _partly(assessment: Assessment) -> str:
    """Where something is promised about a part of what is seen, and nothing about the rest."""
    seen = {name for item in assessment.open for name in item.claim.game.view}
    start = f"Nothing is promised to hold against someone who sees {text.view(seen)}: there is no ceiling on that"
    return f"{start}. For the rest: {_promise(_weakest(assessment.bounded))}."


def _of_machine(assessment: Assessment) -> str:
    """What is promised about the machine that computed on ciphertexts, beside what is not promised about the answer."""
    if not assessment.machine:
        return ""
    promise = _promise(_weakest(assessment.machine), "whatever it tries, a machine that sees ciphertexts alone and gave")
    about = "One promise is about the machine that computed, and not about what was decrypted"
    return f" {about}: {promise}, if its assumptions hold."


def overall(assessments: Sequence[Assessment]) -> str:
    """The sentence of a whole report."""
    if len(assessments) == 1:
        return assessments[0].sentence
    count = Counter(item.status for item in assessments)
    parts = [f"{count[status]} {_SAID[status][count[status] > 1]}" for status in STATUSES if count[status]]
    return f"Of {len(assessments)} releases, {', '.join(parts) if len(parts) > 2 else ', and '.join(parts)}."


def _status(assessment: Assessment) -> str:
    outcomes = {item.outcome for item in assessment.floors}
    if "refuted" in outcomes:
        return "refuted"
    if "warning" in outcomes:
        return "warning"
    if assessment.open or not assessment.bounded:
        return "leaks" if any(map(leaks, assessment.floors)) else "no ceiling"
    if any(excess for item in assessment.floors for excess in item.excesses):
        return "inconclusive"
    verdicts = {each.outcome for item in assessment.floors for each in item.verdicts}
    if "holds" in verdicts:
        return "holds"
    if "inconclusive" in verdicts:
        return "inconclusive"
    return "withheld" if assessment.withheld else "untested"


def leaks(floor: Appraisal) -> bool:
    """Whether an attack surely does better than guessing: by the epsilon it shows, its area, or its rate at 1 %."""
    return floor.epsilon > 0 or floor.auc.low > 0.5 or floor.at(0.01).low > 0.01


def _weakest(ceilings: Sequence[Ceiling]) -> Ceiling:
    """The claim that allows most: a reader of all of them learns at least that much."""
    return max(ceilings, key=lambda item: item.beliefs[-1][1])


def _promise(ceiling: Ceiling, who: str = "Whatever an attacker tries, someone who gave") -> str:
    belief = ceiling.beliefs[-1][1]
    assert ceiling.curve is not None
    always = ceiling.curve.posterior(0.5, 0.0) <= belief
    chance = "a million" if ceiling.rare == 1e-6 else f"{round(1 / ceiling.rare):,}"
    weak = ("" if always else f" (but for a chance of one in {chance})") + (
        ", which is hardly a limit" if belief > _WEAK else ""
    )
    whose, sure = ceiling.claim.game.unit, percent_up(belief)
    return {
        "add_remove": f"{who} even odds to {one(whose)} being in the data can become at most {sure} sure of it{weak}",
        "replace": f"{who} even odds to two versions of {one(whose)} can become at most {sure} sure which is in the data{weak}",
        "zero_out": f"{who} even odds to the values of {one(whose)} being used can become at most {sure} sure of it{weak}",
    }[whose.relation]


def one(unit: Unit) -> str:
    """What is protected, as people say it."""
    name = text.short(unit.name, 40)
    return "a given person" if name in _PEOPLE else "a given row" if name == "record" else f"a given {name}"


def _refuted(assessment: Assessment) -> str:
    broken = next(item for item in assessment.floors if any(each.outcome == "refuted" for each in item.verdicts))
    return (
        f"The promise is broken: the attack “{text.short(broken.evidence.attack, 60)}” tells who is in the data better than "
        "it allows, so what was proven is not what ran. Do not rely on it."
    )


def _unpromised(assessment: Assessment) -> str:
    """Where nothing is promised about what is released."""
    if assessment.withheld:
        return (
            "Nothing is promised: treat this release as if it were the data itself. Attacks were run, and what they reached is "
            "withheld from you."
        )
    if not assessment.floors:
        if recovered(assessment):
            return (
                "Nothing is promised. What other attacks recovered is told below; treat this release as if it were the data "
                "itself."
            )
        return "Nothing is promised and nothing was tried: treat this release as if it were the data itself."
    start = "Nothing is promised: there is no ceiling on what this release gives away"
    best = assessment.strongest
    assert best is not None
    if not any(map(leaks, assessment.floors)):
        return f"{start}. {_guessing(best)}"
    return f"{start}, and the attack “{text.short(best.evidence.attack, 60)}” {found(best)}."


def _guessing(best: Appraisal) -> str:
    """What is said where no attack is surely better than guessing; few targets leave much open."""
    if not best.at(_LEVEL).resolvable:
        most = percent_up(best.at(_LEVEL).high)
        return (
            f"With {best.members:,} members and {best.others:,} others no attack is surely better than guessing, and none is "
            f"surely worse than {most} of those inside at {rate(_LEVEL)} false positives."
        )
    return "The attacks that were tried did little better than guessing, and others may do more."


def found(floor: Appraisal) -> str:
    """What an attack reached, as a sentence's verb and object: the rate at 1 % false positives, or the area where few tell."""
    measured = floor.at(_LEVEL)
    rates = f"recognises {percent_down(measured.rate)} of those inside while it accuses {rate(_LEVEL)} of others"
    across = f"{percent_down(measured.low)} to {percent_up(measured.high)}, {rate(floor.confidence)} sure"
    area = f"; it ranks a member above an outsider {percent_down(floor.auc.value)} of the time"
    return f"{rates} ({across}{'' if measured.resolvable else area})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
