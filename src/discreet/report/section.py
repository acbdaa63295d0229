"""Sections of a report that tell of one kind of release, such as a synthetic table, and are absent elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from discreet.charts import Plot
from discreet.report.assessment import Assessment
from discreet.report.tables import Table


@dataclass(frozen=True)
class Section:
    """What a section tells of one release: pairs of names and texts, tables under headings, plots, and sentences.

    `pictures` are captions and PNG files in base64; the Markdown form has their captions alone.
    """

    title: str
    pairs: tuple[tuple[str, str], ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()


class SectionKind(Protocol):
    """A kind of section: its anchor on the page, its heading, and what it tells of a release, if anything."""

    @property
    def name(self) -> str: ...
    @property
    def heading(self) -> str: ...
    def section(self, item: Assessment, plots: bool) -> Section | None: ...


def filled(
    kinds: Iterable[SectionKind], assessments: Iterable[Assessment], plots: bool = True
) -> list[tuple[SectionKind, list[Section]]]:
    """The kinds of section that have something to tell of these releases, with what they tell."""
    items = list(assessments)
    found = [(kind, [part for item in items if (part := kind.section(item, plots)) is not None]) for kind in kinds]
    return [(kind, parts) for kind, parts in found if parts]
