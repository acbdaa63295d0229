"""Reports where `discreet.report` is not there: the card of a release."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import discreet.accounting  # noqa: F401 (cards draw ceilings once it is loaded)
from discreet.core import Release
from discreet.errors import InvalidValue


def html(release: Release[Any], *, ledger: Any = None) -> str:
    title = escape(release.facts.get("title") or f"Release of {release.source}")
    return f"<!doctype html><title>{title}</title><style>{_style()}</style><main><h1>{title}</h1>{release._repr_html_()}</main>"


def _style() -> str:
    return Path(__file__).with_name("static").joinpath("app.css").read_text("utf-8")


def document(release: Release[Any], *, ledger: Any = None) -> dict[str, Any]:
    return {"source": release.source, "entry": release.entry, "claims": [claim.to_json() for claim in release.claims]}


def markdown(release: Release[Any], *, ledger: Any = None) -> str:
    return f"# {release.facts.get('title') or release.source}\n"


def pdf(release: Release[Any], *, ledger: Any = None) -> bytes:
    raise InvalidValue("Reports as PDF need discreet.report.")
