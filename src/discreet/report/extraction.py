"""The section on memorised text: what comes out verbatim, and how well canaries are known.

Numbers only, unless the attack was told to keep texts (`verbatim`): those are for the owner of the data alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.figures import percent_down, percent_up
from discreet.report import text
from discreet.report.assessment import Assessment
from discreet.report.section import Section
from discreet.report.tables import Table

OUT = ("samples", "comes out with probability", "of the corpus", "one token changed", "of the control", "given away")
MOST, LONGEST = 10, 200  # texts, and letters of each
KNOWN = ("put in", "canaries", "mean bits", "most bits", "ranked exactly", "said first")


@dataclass(frozen=True)
class MemorisedText:
    """The section on extraction and exposure."""

    name: str = "extraction"
    heading: str = "What a language model says verbatim"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        out: Any = item.facts.get("extraction")
        known: Any = item.facts.get("exposure")
        tables, notes = [], []
        if out:
            tables.append(("Texts that come out", Table(OUT, tuple(map(_out, out[:20])))))
            notes.append(
                f"An attacker knows {out[0]['prompt']} tokens of a text and wants the next {out[0]['suffix']}. What comes out "
                "of the control is what the model says anyway."
            )
        if known:
            tables.append(("Canaries", Table(KNOWN, tuple(map(_known, known[:20])))))
            notes.append("Exposure is near 1 bit for a secret that was not seen, and log2 of their number for one said first.")
        made: Any = item.facts.get("unprompted")
        if made:
            notes.append(
                f"Let talk, it made {made['texts']:,} texts of {made['tokens']} tokens; in {made['memorised']:,} of them "
                f"{made['run']} tokens in a row stand in the corpus and not in the control."
            )
        said: Any = item.facts.get("verbatim")
        if said:
            rows = tuple((text.short(each, LONGEST),) for each in said[:MOST])
            tables.append(("Texts of the corpus that come out, likeliest first", Table(("text",), rows)))
            notes.append("Not for release: these texts are private. This page is for the owner of the data alone.")
        return Section(item.title, tables=tuple(tables), notes=tuple(notes)) if tables or notes else None


def _out(each: Any) -> tuple[str, ...]:
    given = f"{percent_down(each['share'])} ({percent_down(each['low'])} to {percent_up(each['high'])})"
    shares = (percent_down(each[name]) for name in ("members", "near", "control"))
    return (f"{each['samples']:,}", f"{each['p']:g} or more", *shares, given)


def _known(each: Any) -> tuple[str, ...]:
    many = "not" if not each["repetitions"] else f"{each['repetitions']} times"
    return (
        many, str(each["canaries"]), f"{each['bits']:.1f}", f"{each['most_bits']:.1f}", str(each["exact"]), str(each["first"]),
    )  # fmt: skip
