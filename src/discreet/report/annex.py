"""The annex for a data protection impact assessment: filled where a fact is known, marked where only people can answer.

Its parts are those of Art. 35 (7) GDPR, with the advice and consultation of Art. 35 (2), (9), (11) and 36; for models also the
two likelihoods that EDPB Opinion 28/2024 asks about. It decides nothing: whether a risk is acceptable, and whether something
is anonymous, are conclusions of law.
"""

from __future__ import annotations

from dataclasses import dataclass

from discreet.figures import percent_up, rate
from discreet.report import tables, text
from discreet.report.assessment import LEVELS, Assessment
from discreet.report.model import Report

_MODEL = {"labels", "scores", "logits", "weights", "transcript"}


@dataclass(frozen=True)
class Item:
    """One question: what the releases say, and what people must say (`ask`, empty where nothing is left to ask)."""

    question: str
    known: tuple[str, ...] = ()
    ask: str = ""


@dataclass(frozen=True)
class Part:
    title: str
    law: str
    items: tuple[Item, ...]


def parts(report: Report) -> tuple[Part, ...]:
    """The annex, part by part."""
    assessments = report.assessments
    models = [item for item in assessments if _views(item) & _MODEL]
    parts_so_far = [_description(report), _necessity(assessments), _risks(report), _measures(report)]
    return (*parts_so_far, *([_anonymous(models)] if models else []), _advice())


def _description(report: Report) -> Part:
    assessments = report.assessments
    return Part("What is done, and what for", "GDPR Art. 35 (7) (a)", (
        Item("What is released?", tuple(f"{item.title}: {item.value}." for item in assessments)),
        Item("From which data?", (f"Named {text.listed(report.sources)} in the releases.",),
             "Where the data comes from, how many people it is about, and how long it is kept."),
        Item("Who sees what of it?", _each(assessments, _seen),
             "Who receives it: inside, partners, the public; and how often they may ask."),
        Item("Whose protection is measured?", _each(assessments, _unit_told),
             "Which people these are; children or other vulnerable people; special categories of data (Art. 9, 10)."),
        Item("For which purposes, and on whose responsibility?", (),
             "Purposes; where it is the ground, the legitimate interest pursued; controller, joint controllers, processors."),
    ))  # fmt: skip


def _necessity(assessments: tuple[Assessment, ...]) -> Part:
    useful = tuple(
        f"{item.title}: " + ", ".join(f"{name} {value}" for name, value in tables.quality(item)) + "."
        for item in assessments
        if tables.quality(item)
    )
    return Part("Whether it is necessary and proportionate", "GDPR Art. 35 (7) (b)", (
        Item("What is the legal basis?", (), "Art. 6, and Art. 9 (2) where it applies."),
        Item("How useful is the release?", useful, "Whether that is enough for the purpose."),
        Item("Would less do?", (),
             "Fewer columns, fewer people, a coarser answer, a smaller ε, a synthetic table, nothing at all."),
        Item("How are people informed, and how do they use their rights?", (),
             "Information, access, rectification, erasure, objection; what erasure means for what is already released."),
    ))  # fmt: skip


def _risks(report: Report) -> Part:
    assessments = report.assessments
    return Part("The risks for people", "GDPR Art. 35 (7) (c)", (
        Item("What can an attacker learn at most?", _each(assessments, _most)),
        Item("What did attacks reach?", _each(assessments, _reached)),
        Item("Who is most exposed?", _each(assessments, _exposed),
             "Whether those are people who would be hurt more than others."),
        Item("Singling out, linking, inferring (WP29 Opinion 05/2014)?", _each(assessments, _three)),
        Item("What was not tested?",
             tuple(dict.fromkeys(text.short(each) for item in assessments for each in item.not_tried[:12]))),
        Item("What else is known about the same people?",
             tuple(f"{text.short(item.source, 60)}: {item.sentence}" for item in report.accounts) or report.warnings[:3],
             "Other releases, other holders of the data, what is public about these people."),
        Item("How severe, and how likely?", (),
             "For the people concerned: discrimination, loss of confidentiality, of reputation, of money; how likely each is."),
    ))  # fmt: skip


def _measures(report: Report) -> Part:
    assessments = report.assessments
    ran = tuple(f"{item.title}: {ceiling.mechanism}." for item in assessments for ceiling in item.ceilings[:4]) or (
        "None is claimed.",
    )
    counted = [text.short(item.source, 60) for item in report.accounts]
    kept = tuple(f"A ledger counts every release from {name} and refuses what does not fit." for name in counted)
    kept = kept or ("No ledger was given to this report.",)
    assumed = tuple(dict.fromkeys(
        text.short(each, 400) for item in assessments for ceiling in item.ceilings for each in ceiling.claim.assumptions
    ))[:20]  # fmt: skip
    return Part("The measures taken", "GDPR Art. 35 (7) (d)", (
        Item("Which technical measures limit what is learned?", (*ran, *kept)),
        Item("What must be true for them to work?", assumed, "Who makes sure of each of these, and how."),
        Item("Which other measures are there?", (),
             "Access control, limits on questions, contracts, logging, deletion, training of staff, reaction to incidents."),
        Item("Which risk remains, and who accepts it?", (),
             "The residual risk; where it is high, prior consultation of the supervisory authority (Art. 36)."),
    ))  # fmt: skip


def _anonymous(assessments: list[Assessment]) -> Part:
    chosen = tuple(assessments)
    return Part("Whether a model may be called anonymous", "EDPB Opinion 28/2024 of 17 December 2024", (
        Item("The test, case by case", (
            "Both likelihoods must be insignificant, for every person whose data was used, with all means reasonably likely to "
            "be used by the controller or by others: that personal data is extracted from the model directly, also with some "
            "probability; and that it is obtained from questions to the model, intended or not.",
            "This report gives evidence for that test. It does not apply it: the conclusion is one of law.",
        )),
        Item("Direct extraction: what is proven, what was tried?", _each(chosen, lambda item: f"{_most(item)} {_kinds(item)}")),
        Item("Questions to the model: what is proven, what was tried?", _each(chosen, _reached)),
        Item("Design", _each(chosen, _designed),
             "Choice of sources, preparation and minimisation of the data, methods that limit memorising, limits on outputs."),
        Item("Analysis", (), "Reviews of code and of the training, audits, how they were followed up."),
        Item("Means reasonably likely to be used", (),
             "Who could get the model, what else they know, what it costs; unintended receivers among them."),
        Item("Conclusion and its reasons", (), "Anonymous or not, for which way of access, until when."),
    ))  # fmt: skip


def _advice() -> Part:
    return Part("Advice, review and signature", "GDPR Art. 35 (2), (9), (11)", (
        Item("Advice of the data protection officer", (), "The advice, and what was made of it."),
        Item("Views of the people concerned, or of those who speak for them", (), "Or why they were not asked."),
        Item("When is this looked at again?",
             ("New data, new access, a raised budget or a better attack change what this annex says.",),
             "A date, and who sees to it."),
        Item("Signature", (), "Name, role, date."),
    ))  # fmt: skip


def _each(assessments: tuple[Assessment, ...], describe: object) -> tuple[str, ...]:
    assert callable(describe)
    return tuple(f"{item.title}: {describe(item)}" if len(assessments) > 1 else str(describe(item)) for item in assessments)


def _views(item: Assessment) -> set[str]:
    games = [*(each.game for each in item.release.claims), *(each.game for each in item.release.evidence)]
    return {name for game in games for name in game.view}


def _seen(item: Assessment) -> str:
    if item.machine and not item.bounded:
        return f"The machine that computed: {text.view(_views(item))}. Whoever gets the release: what was decrypted."
    return f"{text.view(_views(item))}." if _views(item) else "Not stated."


def _unit_told(item: Assessment) -> str:
    units = dict.fromkeys(f"{text.unit(each.claim.game.unit)}, {text.relation(each.claim.game.unit)}" for each in item.ceilings)
    return f"{text.listed(units)}." if units else "No unit of protection is stated."


def _most(item: Assessment) -> str:
    if not item.bounded:
        return " ".join(["Nothing bounds it: there is no ceiling.", *(each.guarantee for each in item.machine[:3])])
    return " ".join(
        f"{each.guarantee} A belief of 50 % can become at most {percent_up(each.beliefs[-1][1])}, except with "
        f"probability {text.small(each.rare)}."
        for each in item.bounded[:3]
    )


def _reached(item: Assessment) -> str:
    if not item.floors:
        return "No attack was run."
    sentences = []
    for floor in item.floors[:8]:
        hits = ", ".join(f"{each.told} at {rate(each.level)} false positives" for each in map(floor.at, LEVELS))
        sentences.append(f"{text.short(floor.evidence.attack, 60)} ({floor.outcome}): {hits}")
    return f"{'; '.join(sentences)}."


def _exposed(item: Assessment) -> str:
    table = tables.groups(item)
    if table is None:
        return tables.records(item) or "Not measured group by group."
    worst = table.rows[0]
    told = ", ".join(f"{head} {cell}" for head, cell in zip(table.heads[1:], worst[1:]) if cell and head != "people or rows")
    return f"Of {len(table.rows)} groups, {worst[0]} ({told})."


def _three(item: Assessment) -> str:
    names = " ".join(floor.evidence.attack.lower() for floor in item.floors)
    kinds = {
        "singling out": bool(item.floors),
        "linking": any(word in names for word in ("join", "link", "scoreboard", "uniqueness")),
        "inferring": any(word in names for word in ("attribute", "class", "reconstruct", "inver", "infer")),
    }
    tried = [kind for kind, was in kinds.items() if was]
    missing = [kind for kind, was in kinds.items() if not was]
    said = [f"tested: {text.listed(tried)} (membership counts as singling out)"] if tried else []
    said += [f"not tested: {text.listed(missing)}"] if missing else []
    return f"{'; '.join(said)}."


def _kinds(item: Assessment) -> str:
    """Which of the attacks that the opinion names were tried."""
    names = " ".join(floor.evidence.attack.lower() for floor in item.floors)
    named = {
        "membership inference": bool(item.floors),
        "attribute inference": "attribute" in names,
        "exfiltration and regurgitation": any(word in names for word in ("extract", "text", "regurgit")),
        "model inversion": "inver" in names,
        "reconstruction": "reconstruct" in names,
    }
    tried = [kind for kind, was in named.items() if was]
    missing = [kind for kind, was in named.items() if not was]
    return f"Tried: {text.listed(tried)}. Not tried: {text.listed(missing)}."


def _designed(item: Assessment) -> str:
    return text.listed(each.mechanism for each in item.ceilings[:3]) + "." if item.ceilings else "Not stated."
