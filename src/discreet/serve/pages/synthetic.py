"""Synthetic tables: requested, priced before anything is spent, made, previewed and downloaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from discreet.core import check
from discreet.core.facts import made
from discreet.errors import DiscreetError, InvalidDocument, InvalidValue
from discreet.serve import tables
from discreet.serve.pages.console import _counted
from discreet.serve.routes import ASKERS, EVERYONE, File, Page, Refused, Reply, Request, Route, message_for, status_of
from discreet.serve.settings import Source
from discreet.serve.store import plain_name, seen_by

FIELDS = ("source", "epsilon", "delta", "method", "rows", "fidelity", "title")
METHODS = ("auto", "independent", "tree", "junction")
MOST_ROWS = 1_000_000


def form(request: Request) -> Reply:
    """The form, and what was made before."""
    asked = {name: request.query.get(name, "")[:200] for name in FIELDS}
    return _page(request, asked)


def _page(request: Request, asked: dict[str, str], part: str | None = None, **more: Any) -> Reply:
    state = request.state
    sources = []
    for name in state.registry.open_to(request.user):
        if state.settings.sources[name].synth is not None:
            balance = state.ledger.balance(name, state.registry.account(request.user, name))
            sources.append({"name": name, "left": balance.epsilon_left,
                            "delta": balance.delta})  # fmt: skip
    data = {"asked": asked, "sources": sources, "made": _made(request)}
    return Page("synthetic.html", data, {"cost": None, "done": None, "refusal": None, "methods": METHODS, **more}, part=part)


def _made(request: Request) -> list[dict[str, Any]]:
    """Synthetic tables that are here, newest first."""
    store, found = request.state.store, []
    for card in store.cards():
        if card.fault is None and tables.table_file(store, card.name, store.load(card.name)) is not None:
            found.append({"name": card.name, "title": card.title, "source": card.source, "made": card.made,
                          "epsilon": card.epsilon})  # fmt: skip
    return found[:50]


def _asked(request: Request) -> tuple[dict[str, str], Source, str, dict[str, Any]]:
    """What is asked for: as text, the source, the account that pays, and the arguments of a fit."""
    asked = {name: request.text(name, "", longest=200) for name in FIELDS}
    name = request.text("source", longest=80)
    registry = request.state.registry
    if name not in registry.open_to(request.user):
        raise InvalidValue(
            f"{request.user.name} may not ask {name[:80]!r}. An owner can give your account a share of a source."
        )
    source, account = request.state.settings.sources[name], registry.account(request.user, name)
    if source.synth is None:
        raise InvalidValue(f"{name} has no schema for synthetic tables: its owner can name one in serve.toml, synth = ….")
    method = check.word("method", asked["method"] or "auto", METHODS)
    how: dict[str, Any] = {"unit": source.unit, "epsilon": request.number("epsilon"), "delta": request.number("delta"),
           "schema": source.synth, "method": method}  # fmt: skip
    rows = request.whole("rows")
    if rows is not None:
        check.whole("rows", rows, most=MOST_ROWS)
    return asked, source, str(account), how


def _refused(request: Request, error: DiscreetError) -> Reply:
    message = message_for(request.user, error)
    asked = {name: request.form.get(name, "")[:200] for name in FIELDS}
    request.state.users.note(request.user.name, "refused", asked["source"], table="synthetic", reason=message[:500])
    if request.wants == "json":
        raise Refused(status_of(error), message)
    return _page(request, asked, "parts/refusal_of_question.html", refusal=message)


def price(request: Request) -> Reply:
    """What the table would cost and how exact it would be; nothing is read and nothing spent."""
    from discreet import synth

    _counted(request)
    try:
        asked, source, account, how = _asked(request)
        explained = _opened(request, lambda: synth.explain(source.location, **how))
        headroom = request.state.registry.headroom(source.name, account, explained.event)
    except DiscreetError as error:
        return _refused(request, error)
    cost = {
        **explained.to_json(), "account": account, "fits": headroom.fits, "refusal": headroom.refusal,
        "left_before": headroom.left_before, "left_after": headroom.left_after if headroom.fits else headroom.left_before,
        "fidelity": asked["fidelity"],
    }  # fmt: skip
    if request.wants == "json":
        return Page("synthetic.html", {"cost": cost})
    return _page(request, asked, "parts/synthetic_cost.html", cost=cost)


def make(request: Request) -> Reply:
    """Spend, fit, and keep the table with its claim; then, if asked, pay to tell how near it is."""
    from discreet import synth

    _counted(request)
    try:
        asked, source, account, how = _asked(request)
        near = request.maybe("fidelity")
        paid: dict[str, Any] = {"ledger": request.state.ledger, "source": source.name, "account": account}
        kept = request.state.store.folder / f".{token_hex(8)}.npz"
        fitted = _opened(request, lambda: synth.fit(source.location, **how, **paid, keep=kept))
        name = _keep(request, fitted, asked, kept)
        note = None
        if near is not None:
            note = _fidelity(request, source, fitted, name, {**how, "epsilon": near}, paid)
    except DiscreetError as error:
        return _refused(request, error)
    release = request.state.store.load(name)
    done = {"release": name, "entry": fitted.entry, "source": source.name, "fidelity": note,
            "table": tables.preview(request.state.store, name, release)}  # fmt: skip
    if request.wants == "json":
        return Page("synthetic.html", {"made": done})
    return _page(request, asked, "parts/synthetic_done.html", done=done, table=done["table"])


def _opened(request: Request, work: Any) -> Any:
    """What opens the source and its schema; only owners see what is wrong with their files."""
    try:
        return work()
    except (InvalidDocument, OSError) as error:
        if request.user.role == "owner" and isinstance(error, InvalidDocument):
            raise
        raise InvalidValue("The source or its schema cannot be read now; an owner sees why.") from error


def _keep(request: Request, fitted: Any, asked: dict[str, str], kept: Path) -> str:
    """The table, its model and its release in a folder of their own, under the entry that paid."""
    rows = request.whole("rows")
    count = rows if rows is not None else min(MOST_ROWS, max(1, round(fitted.value.rows)))
    title = asked["title"] or f"Synthetic {fitted.source}"
    facts = {**fitted.facts, "title": title, "made": made("discreet serve")}
    name = f"{plain_name(fitted.source)}-synthetic-{str(fitted.entry)[:24]}"
    store = request.state.store
    folder = store.folder / name
    try:
        folder.mkdir(exist_ok=True)
        kept.replace(folder / tables.MODEL)
        store.save(name, replace(fitted, facts=facts))
        fitted.value.sample(count).to_parquet(folder / tables.TABLE)
    except (DiscreetError, OSError) as error:
        raise InvalidValue(f"The table was paid for and cannot be written now. An owner can make it of what is kept in "
                           f"the folder of releases, under {name}: discreet sample.") from error  # fmt: skip
    request.state.users.note(request.user.name, "synthesised", fitted.source, entry=fitted.entry, epsilon=asked["epsilon"],
                             rows=count, release=name)  # fmt: skip
    return name


def _fidelity(
    request: Request, source: Source, fitted: Any, name: str, how: dict[str, Any], paid: dict[str, Any]
) -> dict[str, Any]:
    """Noisy distances as a release of their own; a refusal is told, since the table is there already."""
    from discreet import synth

    how = {key: value for key, value in how.items() if key != "method"}
    try:
        near = synth.release_fidelity(source.location, fitted.value, **how, **paid)
    except DiscreetError as error:
        return {"refusal": message_for(request.user, error)}
    told = near.value.to_json()
    kept = replace(near, value=told["means"], facts={**near.facts, "fidelity": told})
    request.state.store.save(f"{name}-fidelity"[:120], kept)
    request.state.users.note(request.user.name, "asked", near.source, of="fidelity", entry=near.entry,
                             epsilon=str(how["epsilon"]), release=f"{name}-fidelity"[:120])  # fmt: skip
    return {"release": f"{name}-fidelity"[:120], "means": told["means"]}


def download(request: Request) -> Reply:
    """The whole table, as parquet or CSV. It is covered by its claim: whoever may see the release may have it."""
    name, kind = request.path["name"], request.path["kind"]
    if kind not in tables.KINDS:
        raise Refused(404, f"A table is downloaded as {', '.join(tables.KINDS)}.")
    try:
        release = seen_by(request.user.role, request.state.store.load(name))
        file = tables.table_file(request.state.store, name, release)
    except DiscreetError as error:
        raise Refused(404, str(error)) from None
    if file is None:
        raise Refused(404, f"{name[:80]} has no synthetic table.")
    if file.stat().st_size > tables.LARGEST:
        raise Refused(413, f"The table is larger than {tables.LARGEST >> 20} MiB; take it from the folder of releases.")
    request.state.users.note(request.user.name, "downloaded", name, kind=kind)
    return File(tables.content(file, kind), tables.KINDS[kind], f"{name}.{kind}")


ROUTES = (
    Route("/synthetic", form, ASKERS, work="heavy"),
    Route("/synthetic/price", price, ASKERS, "POST", work="heavy"),
    Route("/synthetic/make", make, ASKERS, "POST", work="heavy"),
    Route("/synthetic/{name}/table/{kind}", download, EVERYONE, work="heavy", json=False),
)
