"""Sections on what was recovered beside membership: pictures of classes and behind encodings, and shares of the training rows.

Pictures are private. They stand in the owner's page alone: serve leaves these facts out of what analysts see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.figures import percent_down, percent_up, rate
from discreet.report import text
from discreet.report.assessment import Assessment
from discreet.report.section import Section
from discreet.report.tables import Table

MOST = 20
PRIVATE = "Not for release: these pictures came out of private data. This page is for the owner of the data alone."
NO_EPSILON = "There are no neighbouring data sets in this attack: no ε is set against it, and it is no floor of ε."
RECREATED = ("attack", "prior", "classes", "answers asked for", "recognised", "without the model", "given away")
SHARES = ("property", "share of the training rows", "confidence", "half width without the model")


@dataclass(frozen=True)
class RecoveredPictures:
    """The section on pictures that were recreated from a classifier, or read out of encodings."""

    name: str = "pictures"
    heading: str = "Pictures that were recovered"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        recreated: Any = item.facts.get("recreated") or ()
        mixed: Any = item.facts.get("encodings")
        if not recreated and not mixed:
            return None
        tables, notes = [], []
        if recreated:
            more = f"and {len(recreated) - MOST} more" if len(recreated) > MOST else ""
            rows = tuple(map(_recreated, recreated[:MOST]))
            tables.append(("Classes of a classifier, recreated", Table(RECREATED, rows, more)))
            notes += [
                "Recognised: by a judge that saw none of the training pictures. Where a class is a person, it is about that "
                "person; where it is not, about nobody in particular.",
                NO_EPSILON,
            ]  # fmt: skip
        if mixed:
            notes.append("The encoding claims nothing: no ε bounds what it gives away, and this is what it gave away.")
        shown = [(_caption(each), each["picture"]) for each in recreated[:4] if "picture" in each]
        if mixed and "picture" in mixed:
            shown.append(("Read out of the encodings; where originals were given, these stand above", mixed["picture"]))
        if shown:
            notes.append(PRIVATE)
        return Section(
            item.title, pairs=_mixed(mixed) if mixed else (), tables=tuple(tables), notes=tuple(notes),
            pictures=tuple(shown) if plots else (),
        )  # fmt: skip


def _recreated(each: Any) -> tuple[str, ...]:
    known = "share" in each
    given = f"{percent_down(each['share'])} ({percent_down(each['low'])} to {percent_up(each['high'])})" if known else "–"
    return (
        text.short(each["method"], 40), text.short(each["prior"], 40), f"{each['classes']:,}", f"{each['queries']:,}",
        percent_down(each["members"]) if known else "not judged", percent_down(each["control"]) if known else "–", given,
    )  # fmt: skip


def _caption(each: Any) -> str:
    return f"Recreated, one picture a class ({text.short(each['method'], 40)}, prior: {text.short(each['prior'], 40)})"


def _mixed(each: Any) -> tuple[tuple[str, str], ...]:
    told = [("Encodings", f"{each['encodings']:,} of {each['private']:,} private pictures"),
            ("Signs", "flipped by coins, as InstaHide does" if each["signs"] else "sent, as plain mixup does")]  # fmt: skip
    if "found" in each:
        told.append(("Pictures found", f"{each['found']:,} of {each['private']:,}"))
        told.append(("Similarity to the originals (mean SSIM)",
                     f"{each['ssim']:.3f}; that of the nearest public picture {each['baseline']:.3f}"))  # fmt: skip
    return tuple(told)


@dataclass(frozen=True)
class SharesOfRows:
    """The section on property inference."""

    name: str = "shares"
    heading: str = "What share of the training rows has a property"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        listed: Any = item.facts.get("shares")
        if not listed:
            return None
        more = f"and {len(listed) - MOST} more" if len(listed) > MOST else ""
        notes = (
            "Shadow models of known shares learned to tell the share from answers; errors on others of them give the interval. "
            "This is about the training data as a whole, which no claim about one unit bounds.",
        )
        return Section(item.title, tables=(("Told by the model", Table(SHARES, tuple(map(_share, listed[:MOST])), more)),),
                       notes=notes)  # fmt: skip


def _share(each: Any) -> tuple[str, ...]:
    ends = f"{percent_down(each['estimate'])} ({percent_down(each['low'])} to {percent_up(each['high'])})"
    blind = f"{each['blind']:.1%}".replace("%", " %") if "blind" in each else "–"
    return text.short(each["property"], 60), ends, rate(each["confidence"]), blind
