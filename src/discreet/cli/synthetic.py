"""`discreet attack synthetic`: what a synthetic table gives away about the rows it was made of, and how near it is to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli.output import command_line, json_option, table, talk, write_json
from discreet.errors import InvalidValue
from discreet.figures import place_name

if TYPE_CHECKING:
    from discreet.core import Evidence, Release

LEVEL, DELTA = 0.01, 1e-6  # false positives, and the delta of the floor, in the summary
MEASURED = ("risks", "owner_fidelity", "usefulness")


@click.command("synthetic")
@click.argument("file", type=click.Path())
@click.option("--members", required=True, metavar="FILE", help="The rows it was made of: parquet or CSV.")
@click.option("--control", required=True, metavar="FILE", help="Rows of the same kind that it was not made of.")
@click.option("--claim", metavar="RELEASE.json", help="The release of this table: its claims, and how it was fitted.")
@click.option("--schema", metavar="FILE", help="The schema.toml it was fitted with: measures fidelity, and allows fits.")
@click.option("--attacks", default="density,pairs,closest", show_default=True, metavar="A,B",
              help="density, pairs, closest, or shadows, which fits again (needs --claim and --schema).")  # fmt: skip
@click.option("--shadows", default=16, show_default=True, metavar="N", help="How often shadows fits again.")
@click.option("--canaries", type=int, metavar="N", help="Also fit once more with N canaries (needs --claim and --schema).")
@click.option("--secret", metavar="COLUMN", help="The column that inference guesses; by default the last.")
@click.option("--label", metavar="COLUMN", help="Also train on synthetic rows to predict this column of real ones.")
@click.option(
    "-o", "--output", "out", required=True, metavar="FOLDER", help="Where release.json goes. It is for the owner of the data."
)
@click.option("--confidence", type=float, default=0.95, show_default=True, metavar="C", help="Confidence of the intervals.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Which rows and predicates are drawn.")
@json_option
def synthetic_command(
    file: str, members: str, control: str, claim: str | None, schema: str | None, attacks: str, shadows: int,
    canaries: int | None, secret: str | None, label: str | None, out: str, confidence: float, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """How much a synthetic table FILE gives away about the rows it was made of, and how near it is to them.

    Membership attacks, singling out, linkability and inference, each against a control group of rows that it was not made of.
    With --schema also fidelity. All of it is computed from real rows without noise: it is for the owner of the data, not for
    release.
    """
    from discreet.attack.tables import attack_table, audit_generator
    from discreet.attack.tables.alike import alike
    from discreet.core import Release, record
    from discreet.models.tables import read_table
    from discreet.synth import measure_fidelity, train_on_synthetic

    names = [name.strip() for name in attacks.split(",") if name.strip()]
    carried = None if claim is None else Release.load(claim)
    claimed = carried.claims[0].game.unit if carried is not None and carried.claims else record()
    rows_of = claimed if claimed.key is None else record()  # rows are attacked, whoever they belong to
    generator = _generator(carried, schema, Path(members).stem) if "shadows" in names or canaries is not None else None
    read = {"synthetic table": read_table(file), "members": read_table(members), "control group": read_table(control)}
    made, real, others = alike(read).values()
    facts: dict[str, Any] = {}
    if schema is not None:
        settled = _settled(carried, schema, Path(members).stem)
        facts["owner_fidelity"] = measure_fidelity(members, file, unit=claimed, schema=settled, seed=seed).to_json()
    attacked = attack_table(made, real, others, attacks=names, generator=generator, shadows=shadows, secret=secret,
                         unit=rows_of, seed=seed, confidence=confidence)  # fmt: skip
    evidence = list(attacked.evidence)
    if canaries is not None and generator is not None:
        talk(f"Fitting once more, with {canaries} canaries. It is not paid for: what it shows stays with you.")
        rows = {name: real[name] for name in real if name in made or name == claimed.key}
        evidence.append(audit_generator(generator, rows, canaries=canaries, unit=claimed))
    facts |= attacked.facts()
    facts["attack_settings"] = {
        "shadow tables": f"{shadows:,}" if generator is not None and "shadows" in names else "none",
        "canaries": "none" if canaries is None else f"{canaries:,}, each in or out by a fair coin, in one more fit",
        "rows asked about": f"{len(next(iter(real.values()))):,} members, {len(next(iter(others.values()))):,} others",
    }
    if label is not None:
        facts["usefulness"] = train_on_synthetic(made, real, others, label).to_json()
    release = _release(file, carried, evidence, facts, seed)
    _tell(release, Path(out), confidence, attacked.notes, as_json)


def _generator(carried: Release[Any] | None, schema: str | None, name: str) -> Any:
    """The synthesis that made the table, to run on other rows."""
    fitted = None if carried is None else carried.facts.get("synthetic")
    if carried is None or fitted is None or schema is None or not carried.claims:
        raise InvalidValue("Fitting again needs --claim, the release.json that discreet synth wrote, and --schema.")
    unit = carried.claims[0].game.unit
    import pyarrow as pa

    from discreet import synth

    how: dict[str, Any] = {name: fitted[name] for name in ("method", "epsilon", "delta")}

    known = replace(synth.Schema.of(schema, name), omitted=frozenset())  # of the rows in question, what was left out is gone

    def generate(rows: Any) -> Any:
        table = pa.table({name: rows[name] for name in rows if name in known.columns or name == unit.key})
        if unit.key is not None and unit.key not in table.column_names:  # rows in question, each somebody's only one
            table = table.append_column(unit.key, pa.array(range(len(table))))
        made = synth.fit(table, unit=unit, schema=known, **how)
        return made.value.sample().to_arrow()

    return generate


def _settled(carried: Release[Any] | None, schema: str, name: str) -> Any:
    """The schema with the cells that the fit found, which its release tells."""
    from discreet.synth import Schema

    known = Schema.of(schema, name)
    settings = (
        {} if carried is None else {it["name"]: it.get("found") for it in carried.facts.get("synthetic", {}).get("columns", ())}
    )
    return known.settled({name: found for name, found in settings.items() if found})


def _release(
    file: str, carried: Release[Any] | None, evidence: list[Evidence], facts: dict[str, Any], seed: int
) -> Release[Any]:
    """The evidence beside the claims of the table, which its entry paid for; without them nothing is claimed."""
    from discreet.core import Claim, ExternalValue, Game, NonPrivate, Release, record
    from discreet.core.facts import made

    title = f"Synthetic table {place_name(file)}, attacked"
    about = {"title": title, "made": made(command_line()), "seeds": {"attacks": seed}, **facts}
    if carried is not None:
        return replace(carried, value=ExternalValue("Table"), evidence=tuple(evidence), facts={**carried.facts, **about})
    nothing = Claim(game=Game(record(), {"table"}), event=NonPrivate())
    return Release(
        value=ExternalValue("Table"), source=place_name(file), claims=(nothing,), evidence=tuple(evidence), facts=about
    )


def _tell(release: Release[Any], folder: Path, confidence: float, notes: tuple[str, ...], as_json: bool) -> None:
    from discreet.audit import epsilon_at_least
    from discreet.core import NonPrivate

    folder.mkdir(parents=True, exist_ok=True)
    release.save(folder / "release.json")
    rows = [
        {"attack": it.attack, "design": it.design, "auc": it.auc(), "tpr": it.tpr(LEVEL),
         "epsilon_at_least": epsilon_at_least(it, DELTA, confidence)}
        for it in release.evidence
    ]  # fmt: skip
    facts = release.to_json()["facts"]
    if as_json:
        write_json({"attacks": rows, **{name: facts[name] for name in MEASURED if name in facts}})
    else:
        _show(rows, facts, confidence)
    for note in notes:
        talk(note)
    talk("Not for release: all of this was computed from real rows without noise.")
    claimed = any(not isinstance(claim.event, NonPrivate) for claim in release.claims)
    file = folder / "release.json"
    ceiling = f"Compare with the claims: discreet audit {file}" if claimed else "Nothing is claimed: no ceiling."
    talk(f"{file} holds the evidence. {ceiling}")


def _show(rows: list[dict[str, Any]], facts: Any, confidence: float) -> None:
    from discreet.figures import down

    heads = ("attack", "design", "AUC", f"TPR at {LEVEL:.2g} FPR", f"epsilon at least ({confidence:.0%})")
    table(
        [(it["attack"], it["design"], f"{it['auc']:.3f}", f"{it['tpr']:.2%}", down(it["epsilon_at_least"])) for it in rows],
        heads=heads,
    )
    risks = [
        (it["name"], f"{it['members']:.1%}", f"{it['control']:.1%}", f"{it['baseline']:.1%}",
         f"{it['share']:.1%} ({it['low']:.1%} to {it['high']:.1%})")
        for it in facts["risks"]
    ]  # fmt: skip
    table(risks, heads=("risk", "on members", "on the control group", "blind guess", "excess"))
    if near := facts.get("owner_fidelity"):
        means = [f"{n}-way {near['means'][n]:.4f}" for n in ("1", "2", "3") if n in near["means"]]
        table([("mean total variation", ", ".join(means))])
    if useful := facts.get("usefulness"):
        right = [f"{useful[f'{kind}_accuracy']:.1%}" for kind in ("synthetic", "real")]
        areas = [useful[f"{kind}_auc"] for kind in ("synthetic", "real")]
        more = "" if areas[0] is None else f"; AUC {areas[0]:.3f} against {areas[1]:.3f}"
        what = f"{useful['label']} learned from synthetic rows"
        table([(what, f"right on {right[0]} of real ones, against {right[1]}{more}")])
