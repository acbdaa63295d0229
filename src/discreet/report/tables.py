"""The tables of a report as plain text, shared by all its forms. Losses are rounded up, floors down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from discreet.audit import Appraisal
from discreet.audit.judge import SURE
from discreet.figures import down, percent_down, percent_up, rate, up
from discreet.report import text
from discreet.report.assessment import LEVELS, Assessment
from discreet.report.model import Report
from discreet.report.sentences import recovered

MOST_GROUPS, MOST_RECORDS, MOST_ATTACKS, MOST_ASSUMPTIONS, MOST_LINES = 40, 20, 40, 20, 60
_DESIGNS = {"paired": "paired", "canary": "canaries", "post_hoc": "post hoc"}


@dataclass(frozen=True)
class Table:
    """Cells of text under heads; `more` says what was left out."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""


def compared(report: Report) -> Table:
    """Several releases side by side, one line each."""
    several = len({item.delta for item in report.assessments}) > 1
    measures = sorted({name for item in report.assessments for name in item.facts.get("quality", {})})[:3]
    rows = [
        (
            item.title,
            item.status,
            _least(item) + (f" at {text.small(item.delta)}" if several and item.bounded else ""),
            _belief(item),
            _strongest(item),
            *(_number(item.facts.get("quality", {}).get(name)) for name in measures),
        )
        for item in report.assessments
    ]
    deltas = {item.delta for item in report.assessments}
    heads = (
        "release",
        "verdict",
        f"ceiling: ε at δ = {text.small(min(deltas))}" if len(deltas) == 1 else "ceiling: ε, at the δ of its budget",
        "belief: 50 % becomes at most",
        "strongest attack",
    )
    return Table((*heads, *(text.short(name, 30) for name in measures)), tuple(rows))


def together(report: Report) -> str:
    """What releases about the same people give away taken together, which no line about one of them tells."""
    alone = "Each line is about one release alone. What is given away about the same people adds up"
    counted = [
        f"all that {text.short(item.source, 60)} paid for amounts to ε = {up(item.balance.epsilon_spent)} at "
        f"δ = {text.small(item.balance.delta)}"
        for item in report.accounts[:5]
        if not item.balance.by_period
    ]
    return f"{alone}: {'; '.join(counted)}." if counted else f"{alone}, and no ledger was given that counts it."


def key_figures(assessment: Assessment, report: Report) -> list[tuple[str, str, str]]:
    """Three figures under the verdict: a name, a number, and what it means."""
    figures = [
        (
            "Ceiling",
            _least(assessment, "ε ≤ "),
            f"at δ = {text.small(assessment.delta)}" if assessment.bounded else "nothing is promised",
        )
    ]
    best = assessment.strongest
    if best is not None:
        measured = best.at(LEVELS[-1])
        number, _, across = measured.told.partition(" (")
        means = f"found at {rate(measured.level)} false positives, by {text.short(best.evidence.attack, 30)}"
        figures.append(("Strongest attack", number, f"({across} {means}" if across else means))
    else:
        nothing = "what others recovered is below" if recovered(assessment) else "nothing was tried"
        told = ("withheld", "owners and officers see it") if assessment.withheld else ("none", nothing)
        figures.append(("Strongest attack", *told))
    for item in report.accounts[:1]:
        if not item.balance.by_period:
            of = f"of ε = {item.balance.epsilon:g} at δ = {text.small(item.balance.delta)} for {text.short(item.source, 30)}"
            left, how = item.balance.left_in_words().split(" ", 1)
            figures.append(("Budget left", f"ε {left}", f"{how}, {of}"))
    useful = quality(assessment)
    for name, value in [each for each in useful if _of_strangers(each[0])][:1] or useful[:1]:
        beside = [f"{other}: {number}" for other, number in useful if other != name and not _of_strangers(other)][:1]
        figures.append(("Quality", value, "; ".join([name, *beside])))
    return figures


def _of_strangers(name: str) -> bool:
    """Whether a measure is of rows that were not trained on."""
    return any(word in name for word in ("test", "stranger", "holdout", "nonmember"))


def evidence(assessment: Assessment, confidence: float, most: int = MOST_ATTACKS) -> Table:
    """Every attack on a release, one line each."""
    rows = tuple(_attack(floor) for floor in assessment.floors[:most])
    left = len(assessment.floors) - len(rows)
    rates = (f"found at {rate(level)} FPR" for level in LEVELS)
    heads = ("attack", "sees", "design", "targets", "AUC", *rates, f"ε at least ({rate(confidence)} sure)", "verdict")
    return Table(heads, rows, f"and {left} more, in the JSON form of this report" if left else "")


def evidence_note(confidence: float, deltas: Iterable[float]) -> str:
    at = text.listed([text.small(each) for each in sorted(set(deltas))], "or")
    return (
        "Found at an FPR: the share of those inside that the attack recognises while that share of the others are false "
        f"positives, with its {rate(confidence)} interval. ε at least: no smaller ε is true of what was attacked, at δ = "
        f"{at} and {rate(confidence)} confidence; of a post-hoc attack it is indicative only. "
        f"Verdicts are {rate(SURE)} sure."
    )


def belief_note() -> str:
    return (
        "Belief: what someone who knows everything else, and thought it so likely, can at most think after seeing the "
        "release, except with probability 1e-6, or with the one beside it."
    )


def groups(assessment: Assessment) -> Table | None:
    """How exposed each class or group is, worst first."""
    listed: Any = assessment.facts.get("groups", ())
    if not listed:
        return None
    ordered = sorted(listed, key=lambda item: -max(item.get("tpr", {}).values(), default=item.get("auc", 0.0)))
    levels = sorted({level for item in listed for level in item.get("tpr", {})}, key=float)[:3]
    rows = [
        (
            f"{text.short(item['by'], 40)}: {text.short(item['group'], 60)}",
            f"{item['n']:,}" if "n" in item else "",
            *(_share(item, level) for level in levels),
            down(item["auc"], 3) if "auc" in item else "",
        )
        for item in ordered[:MOST_GROUPS]
    ]
    heads = ("group", "people or rows", *(f"found at {rate(float(level))} FPR" for level in levels), "AUC")
    left = len(listed) - MOST_GROUPS
    return _filled(Table(heads, tuple(rows), f"and {left} more groups" if left > 0 else ""))


def _share(group: Any, level: str) -> str:
    """A group's rate; where the release has an interval, it is that of the largest false-positive rate."""
    rates = group.get("tpr", {})
    if level not in rates:
        return ""
    if level != max(rates, key=float) or "low" not in group or "high" not in group:
        return percent_down(rates[level])
    return f"{percent_down(rates[level])} ({percent_down(group['low'])} to {percent_up(group['high'])})"


def _filled(table: Table) -> Table:
    """Without columns in which nothing stands."""
    kept = [place for place in range(len(table.heads)) if any(row[place] for row in table.rows)]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return Table(tuple(table.heads[place] for place in kept), rows, table.more)


def records(assessment: Assessment) -> str | None:
    """The most exposed records, by their number alone."""
    listed = assessment.facts.get("exposed", ())
    if not listed:
        return None
    shown = ", ".join(str(item["index"]) for item in listed[:MOST_RECORDS])
    more = f" and {len(listed) - MOST_RECORDS:,} more" if len(listed) > MOST_RECORDS else ""
    return f"The most exposed records, by their number in the data: {shown}{more}."


def controls(assessment: Assessment) -> Table | None:
    """What the attacks found where there is something to find, and where there is nothing."""
    listed = assessment.facts.get("controls", ())
    if not listed:
        return None
    rows = [
        (
            text.short(item["name"], 80),
            "must be found" if item["kind"] == "positive" else "must not be found",
            "" if "found" not in item else "found" if item["found"] else "not found",
            text.listed(f"{percent_down(hit)} at {rate(float(level))}" for level, hit in item.get("tpr", {}).items())
            if item.get("tpr")
            else "",
            down(item["auc"], 3) if "auc" in item else "",
        )
        for item in listed[:20]
    ]
    return _filled(Table(("control", "it", "was", "true positives at an FPR", "AUC"), tuple(rows)))


def control_notes(assessment: Assessment) -> list[str]:
    """What to say of controls that did not come out as they should."""
    listed = [item for item in assessment.facts.get("controls", ()) if "found" in item]
    silent_ones = [text.short(item["name"], 80) for item in listed if item["kind"] == "positive" and not item["found"]]
    biased = [text.short(item["name"], 80) for item in listed if item["kind"] == "negative" and item["found"]]
    silent = "found nothing where there is something to find, so that it is silent elsewhere means nothing."
    noisy = "“finds” people where there are none to find; what it finds elsewhere is not membership alone."
    several = [f"{len(silent_ones)} controls ({text.listed([*silent_ones[:3], f'{len(silent_ones) - 3} more'])}): {silent}"]
    told = several if len(silent_ones) > 4 else [f"{name}: {silent}" for name in silent_ones]
    return [*told, *(f"{name}: {noisy}" for name in biased)]


def accounts(report: Report, place: int) -> Table | None:
    """How a budget is shared and used; None for one that is not shared."""
    from discreet.ledger.summary import ADDS_UP, HEADS

    parts = report.accounts[place].shares
    if len(parts) <= 2:
        return None
    rows = (*parts[:MOST_LINES], parts[-1]) if len(parts) > MOST_LINES + 1 else parts
    more = f" {len(parts) - len(rows)} other accounts are in the ledger." if len(rows) < len(parts) else ""
    return Table(HEADS, tuple(each.told() for each in rows), ADDS_UP + more)


def entries(report: Report, place: int) -> Table:
    account = report.accounts[place]
    rows = [(line.id, line.at, line.kind, line.told, line.paid or "") for line in account.lines]
    left = account.count - len(rows)
    heads = ("entry", "at (UTC)", "what", "told", "paid for")
    return Table(heads, tuple(rows), f"{left:,} other entries are in the ledger" if left > 0 else "")


def reproduce(assessment: Assessment) -> list[tuple[str, str]]:
    """Versions, seeds and hashes, one line each."""
    facts = assessment.facts
    origin = facts.get("made", {})
    rows = [("document", assessment.hash)] if assessment.hash else []
    rows += [(name, origin[name]) for name in ("when", "discreet", "python", "command") if name in origin]
    rows += [(name, version) for name, version in list(origin.get("packages", {}).items())[:30]]
    rows += [(f"seed of {name}", f"{seed:g}") for name, seed in list(facts.get("seeds", {}).items())[:30]]
    rows += [(name, digest) for name, digest in list(facts.get("hashes", {}).items())[:30]]
    return [(text.short(name, 60), text.short(value, 400)) for name, value in rows][:MOST_LINES]


def settings(assessment: Assessment) -> list[tuple[str, str]]:
    """How the attacks were run, where the release says so: shadows, queries, seeds."""
    return _pairs(assessment.facts.get("attack_settings"))


def about(assessment: Assessment) -> list[tuple[str, str]]:
    """Who answers for a release, and what it is for."""
    names = (("owner", "Owner"), ("contact", "Contact"), ("intended_use", "Intended use"), ("version", "Version"))
    return [
        (name, text.short(assessment.facts[fact], 300))
        for fact, name in names
        if isinstance(assessment.facts.get(fact), (str, int, float))
    ]


def questions(assessments: Iterable[Assessment]) -> list[Assessment]:
    """The releases that answer a question in SQL."""
    return [item for item in assessments if question(item) or answered(item)]


def question(assessment: Assessment) -> str | None:
    """The SQL text that was answered: as the console keeps it, or as every SQL release has it."""
    asked = assessment.facts.get("question", assessment.facts.get("query"))
    sql = asked.get("sql") if isinstance(asked, Mapping) else asked
    return text.short(sql, 2_000) if isinstance(sql, str) else None


def answered(assessment: Assessment, most: int = 20) -> Table | None:
    """The answer of a SQL release: its columns, of many rows the first."""
    value = assessment.release.value
    columns, count = _columns(value.slice(0, most), len(value)) if hasattr(value, "to_pydict") else _columns(value)
    rows = tuple(tuple(_cell(item) for item in row) for row in list(zip(*columns.values()))[:most])
    if not rows:
        return None
    left = count - len(rows)
    return Table(tuple(text.short(name, 60) for name in columns), rows, f"and {left:,} more rows" if left > 0 else "")


def _columns(value: Any, count: int | None = None) -> tuple[dict[str, list[Any]], int]:
    """The columns of an answer, and how many rows it has: an Arrow table, columns by name, or a list of rows."""
    if hasattr(value, "to_pydict"):
        found: Any = value.to_pydict()
    elif isinstance(value, Mapping):
        found = value.get("columns")
    elif isinstance(value, list) and value and all(isinstance(row, Mapping) and row.keys() == value[0].keys() for row in value):
        found = {name: [row[name] for row in value] for name in value[0]}
    else:
        found = None
    if not isinstance(found, Mapping) or not found or not all(isinstance(each, list) for each in found.values()):
        return {}, 0
    lengths = {len(each) for each in found.values()}
    return (dict(found), lengths.pop() if count is None else count) if len(lengths) == 1 else ({}, 0)


def versions(report: Report) -> Table | None:
    """The versions of one model side by side, oldest first: what each claims, and what attacks reached."""
    dated = [item for item in report.assessments if "version" in item.facts or item.facts.get("made", {}).get("when")]
    by_title: dict[str, list[Assessment]] = {}
    for item in dated:
        by_title.setdefault(str(item.facts.get("title", "")), []).append(item)
    rows = []
    for name, items in by_title.items():
        if name and len(items) > 1:
            items.sort(key=lambda item: str(item.facts.get("made", {}).get("when", "")))
            rows += [
                (text.short(name, 60), _version(item), item.status, _least(item), _belief(item), _strongest(item))
                for item in items
            ]
    heads = ("model", "version", "verdict", "ceiling: ε", "belief: 50 % becomes at most", "strongest attack")
    return Table(heads, tuple(rows)) if rows else None


def _compared(item: Assessment) -> tuple[str, str, str]:
    return _least(item), _belief(item), _strongest(item)


def _version(item: Assessment) -> str:
    when = str(item.facts.get("made", {}).get("when", ""))[:10]
    return text.short(" ".join(str(each) for each in (item.facts.get("version", ""), when) if each), 40)


def _pairs(values: Any) -> list[tuple[str, str]]:
    if not isinstance(values, Mapping):
        return []
    return [(text.short(name, 60), text.short(value, 200)) for name, value in list(values.items())[:20]]


def _cell(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else "NULL" if value is None else text.short(value, 80)


def tried(assessment: Assessment) -> list[str]:
    """What the release itself says was tried."""
    return [text.short(attack) for attack in assessment.facts.get("tried", ())[:20]]


def quality(assessment: Assessment) -> list[tuple[str, str]]:
    return [(text.short(name, 60), _number(value)) for name, value in list(assessment.facts.get("quality", {}).items())[:12]]


def _attack(floor: Appraisal) -> tuple[str, ...]:
    seen = floor.evidence
    runs = f"{floor.runs:,} run{'' if floor.runs == 1 else 's'}"
    return (
        text.short(seen.attack, 80),
        text.view(seen.game.view),
        _DESIGNS[seen.design],
        f"{floor.members:,} in, {floor.others:,} out; {runs}",
        area(floor),
        *(floor.at(level).told for level in LEVELS),
        f"{down(floor.epsilon)}{' (indicative)' if floor.indicative and floor.epsilon else ''}",
        floor.outcome,
    )


def area(floor: Appraisal) -> str:
    """The area under the curve with its interval."""
    return f"{down(floor.auc.value, 3)} ({down(floor.auc.low, 3)} to {up(floor.auc.high, 3)})"


def _least(assessment: Assessment, before: str = "") -> str:
    if not assessment.bounded:
        return "no ceiling"
    return before + up(max(item.epsilons[0][1] for item in assessment.bounded))


def _belief(assessment: Assessment) -> str:
    return percent_up(max(item.beliefs[-1][1] for item in assessment.bounded)) if assessment.bounded else "100 %"


def _strongest(assessment: Assessment) -> str:
    best = assessment.strongest
    if best is None:
        return "withheld" if assessment.withheld else "none was tried"
    measured = best.at(LEVELS[-1])
    return f"{text.short(best.evidence.attack, 40)}: {measured.told} at {rate(measured.level)} FPR"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def assumptions(items: Iterable[str]) -> list[str]:
    known = list(items)
    shown = [text.short(item, 600) for item in known[:MOST_ASSUMPTIONS]]
    return shown if len(known) <= MOST_ASSUMPTIONS else [*shown, f"and {len(known) - MOST_ASSUMPTIONS} more"]
