"""`discreet attack`: what a finished table, a list of published answers, or a model gives away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.attribute import attribute_command
from discreet.cli.encodings import encodings_command
from discreet.cli.extraction import exposure_command, extraction_command
from discreet.cli.gradients import gradients_command
from discreet.cli.inversion import inversion_command
from discreet.cli.membership import model_command
from discreet.cli.output import json_option, table, talk, write_json
from discreet.cli.share import property_command
from discreet.cli.stealing import stealing_command
from discreet.cli.synthetic import synthetic_command
from discreet.cli.theft import theft_command
from discreet.errors import InvalidValue
from discreet.figures import place_name

if TYPE_CHECKING:
    from discreet.core import Evidence


@click.group("attack", help=COMMANDS["attack"])
def command() -> None: ...


command.add_command(attribute_command)
command.add_command(exposure_command)
command.add_command(extraction_command)
command.add_command(encodings_command)
command.add_command(gradients_command)
command.add_command(inversion_command)
command.add_command(model_command)
command.add_command(property_command)
command.add_command(stealing_command)
command.add_command(synthetic_command)
command.add_command(theft_command)


out_option = click.option(
    "-o", "--output", "out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a release.json with the evidence."
)


@command.command("table")
@click.argument("file", type=click.Path())
@click.option("--quasi", required=True, metavar="A,B,C", help="Columns that others may know: age, sex, place, ….")
@click.option("--sensitive", metavar="S", help="A column that nobody should learn; l and t are found for it.")
@click.option("--population", metavar="FILE2", type=click.Path(), help="A list of people with the same columns, to join with.")
@click.option("--id", "identity", metavar="ID", help="A column of both files that says who it is: matches are checked with it.")
@click.option("--fraction", type=float, metavar="F", help="The share of the population that is in the table, to estimate with.")
@out_option
@json_option
def table_command(
    file: str, quasi: str, sensitive: str | None, population: str | None, identity: str | None, fraction: float | None,
    out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Who stands alone in a table FILE, what k, l and t it has, and whom a join finds."""
    _tell(audit_table(file, quasi, fraction, sensitive, population, identity, out), as_json)
    if out:
        _tell_saved(out)


def audit_table(
    file: str, quasi: str, fraction: float | None, sensitive: str | None, population: str | None, identity: str | None,
    out: str | None,
) -> dict[str, Any]:  # fmt: skip
    """What the command reports of a table; the evidence of a join is written to `out`."""
    from discreet.models.tables import read_table

    on = [name.strip() for name in quasi.split(",") if name.strip()]
    if not on:
        raise InvalidValue("No column was named: give --quasi, the columns that others may know, divided by commas.")
    if out and not (population and identity):
        raise InvalidValue("-o writes evidence, which needs the truth: give --population and --id as well.")
    released = read_table(file)
    facts = {**_alone(released, on, fraction), **(_secrets(released, on, sensitive) if sensitive else {})}
    if population:
        joined, evidence = _joined(released, read_table(population), on, identity)
        facts.update(joined)
        if out and evidence is not None:
            _save(out, file, facts, evidence)
    return facts


def _alone(released: dict[str, Any], on: list[str], fraction: float | None) -> dict[str, Any]:
    from discreet.attack import uniqueness

    measured = uniqueness(released, on)
    facts: dict[str, Any] = {
        "rows": measured.rows,
        "classes": measured.classes,
        "unique": measured.unique,
        "unique_share": measured.share,
    }
    facts["k"] = measured.k
    if fraction is not None:
        facts["unique_in_population_estimate"] = measured.population(fraction)
        facts["unique_match_right_estimate"] = measured.match_is_right(fraction)
    return facts


def _secrets(released: dict[str, Any], on: list[str], sensitive: str) -> dict[str, Any]:
    from discreet.heuristic import background, homogeneity, l_diversity, t_closeness

    return {
        "l": int(l_diversity(released, on, sensitive)),
        "l_entropy": l_diversity(released, on, sensitive, "entropy"),
        "t": t_closeness(released, on, sensitive),
        "exposed_share": homogeneity(released, on, sensitive).share,
        "exposed_share_if_one_value_is_ruled_out": background(released, on, sensitive, ruled_out=1).share,
    }


def _joined(
    released: dict[str, Any], people: dict[str, Any], on: list[str], identity: str | None
) -> tuple[dict[str, Any], Evidence | None]:
    import numpy as np

    from discreet.attack import Join, linked
    from discreet.columns import columns
    from discreet.core import Evidence, Game, record

    links = linked(released, people, on)
    facts = {"linked": links.hits, "linked_share": links.share, "candidates_median": float(np.median(links.candidates))}
    if identity is None:
        return facts, None
    ours, theirs = (columns(each, [identity])[identity].astype(str) for each in (released, people))
    facts["linked_right"] = links.right(ours, theirs)
    score = Join(people, on).score(released, range(len(theirs)))
    inside = np.isin(theirs, ours)
    return facts, Evidence(
        game=Game(record(), {"table"}), attack="join on quasi-identifiers", score=score, inside=inside,
        run=np.zeros(len(score), dtype=np.int64), design="post_hoc",
    )  # fmt: skip


@command.command("answers")
@click.argument("file", type=click.Path())
@click.option("--answer", default="answer", show_default=True, metavar="COLUMN", help="The column with the published counts.")
@click.option(
    "--members", metavar="COLUMN", help="A column that lists who was counted, divided by spaces; else a 0/1 column each."
)
@click.option("--truth", metavar="FILE2", type=click.Path(), help="Who has the secret: a column of names and one of 0 and 1.")
@click.option(
    "--method", default="least_squares", show_default=True, metavar="M", help="exhaustive, linear_program or least_squares."
)
@out_option
@json_option
def answers_command(
    file: str, answer: str, members: str | None, truth: str | None, method: str, out: str | None, as_json: bool
) -> None:
    """Which secret bits follow from published counts: each line of FILE is a count and who was counted."""
    from discreet.attack import determined, isolating_queries, reconstruct_bits
    from discreet.models.tables import read_table

    if out and not truth:
        raise InvalidValue("-o writes evidence, which needs the truth: give --truth as well.")
    people, subsets, answers = _questions(read_table(file), answer, members)
    estimate = reconstruct_bits(subsets, answers, method)
    pairs, fixed = isolating_queries(subsets), determined(subsets)
    facts: dict[str, Any] = {
        "questions": len(answers), "people": len(people), "pairs_that_isolate_one": len(pairs),
        "determined_if_exact": int(fixed.sum()), "determined_share": float(fixed.mean()),
        "error_left": float(abs(subsets @ (estimate > 0.5).astype(float) - answers).max()),
    }  # fmt: skip
    evidence = None
    if truth:
        evidence = _against(truth, people, estimate - 0.5, method)
        facts["reconstructed_share"] = float(((estimate > 0.5) == evidence.inside).mean())
    if as_json:
        facts["bits"] = {name: bool(bit) for name, bit in zip(people, estimate > 0.5)}
        facts["isolating_pairs"] = pairs
    _tell(facts, as_json)
    if out and evidence is not None:
        _save(out, file, {name: facts[name] for name in facts if name != "bits"}, evidence)
        _tell_saved(out)


def _questions(table: dict[str, Any], answer: str, members: str | None) -> tuple[list[str], Any, Any]:
    """The people, who was counted in each question, and the counts."""
    import numpy as np

    from discreet.columns import columns, numeric

    answers = columns(table, [answer])[answer]
    if not numeric(answers):
        raise InvalidValue(f"Column {answer!r} must hold the published counts; it holds text.")
    if members is not None:
        listed = [set(str(cell or "").replace(";", " ").split()) for cell in columns(table, [members])[members].tolist()]
        people = sorted(set().union(*listed))
        subsets = np.array([[name in row for name in people] for row in listed], dtype=np.bool_).reshape(len(listed), -1)
    else:
        people = [name for name in table if name != answer]
        wide = [table[name] for name in people]
        if not all(numeric(column) and np.isin(column, (0, 1)).all() for column in wide):
            raise InvalidValue(
                f"Every column but {answer!r} must be a person, 1 where counted and 0 where not; or give --members."
            )
        subsets = np.array(wide, dtype=np.bool_).T
    if not people:
        raise InvalidValue("The file names nobody who was counted; it needs a column for each person, or --members.")
    return people, subsets, answers.astype(np.float64)


def _against(truth: str, people: list[str], score: Any, method: str) -> Evidence:
    """The guesses beside the truth. Who had the bit was not decided by our coins, so the design is post_hoc."""
    import numpy as np

    from discreet.core import Evidence, Game, record
    from discreet.models.tables import read_table

    known = list(read_table(truth).values())
    if len(known) != 2 or not np.isin(known[1], (0, 1)).all():
        raise InvalidValue(f"{truth!r} must have two columns: who, and 1 or 0.")
    bits = dict(zip(map(str, known[0].tolist()), known[1].astype(bool).tolist()))
    lacking = [name for name in people if name not in bits]
    if lacking:
        raise InvalidValue(f"{truth!r} says nothing of {len(lacking)} of the {len(people)} people counted.")
    return Evidence(
        game=Game(record("replace"), {"answers"}), attack=f"reconstruction ({method.replace('_', ' ')})", score=score,
        inside=[bits[name] for name in people], run=np.zeros(len(people), dtype=np.int64), design="post_hoc",
    )  # fmt: skip


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(facts)
    else:
        table([(name.replace("_", " "), _shown(name, value)) for name, value in facts.items()])


def _shown(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2%}" if "share" in name or "estimate" in name else f"{value:.4g}"
    return str(value)


def _save(out: str, file: str, facts: dict[str, Any], evidence: Evidence) -> None:
    from discreet.core import Release

    Release(value=facts, source=place_name(file), claims=(), evidence=(evidence,)).save(out)


def _tell_saved(out: str) -> None:
    talk(f"The evidence is in {out}; it has no claim beside it, so there is no ceiling.")
