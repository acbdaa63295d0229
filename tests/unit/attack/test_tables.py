"""Attacks on synthetic tables: what each sees, that a copy is found and that noise is not, and what bad input is told."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from discreet.attack.tables import (
    ClosestRecord,
    DensityRatio,
    NoisyCounts,
    ShadowGenerators,
    attack_table,
    audit_generator,
    density,
    inference,
    linkability,
    made_canaries,
    singling_out,
)
from discreet.attack.tables.alike import alike
from discreet.attack.tables.encode import Encoding, joined
from discreet.attack.tables.risks import compared
from discreet.audit import epsilon_at_least
from discreet.columns import columns, missing
from discreet.errors import InvalidValue


def people(count: int, seed: int) -> dict[str, Any]:
    """People with a number, a category that goes with it, and some values that are missing."""
    draw = np.random.default_rng(seed)
    age = draw.integers(0, 90, count)
    town = np.array(list("abcdefgh"), object)[(age // 15 + draw.integers(0, 3, count)) % 8]
    town[draw.random(count) < 0.05] = None
    return {"age": age, "town": town, "income": np.round(draw.lognormal(10, 1, count), 2), "size": draw.integers(0, 5, count)}


REAL, OTHERS = people(600, 1), people(600, 2)


def copied(table: Any) -> dict[str, Any]:
    """An overfit generator: rows of the table, one cell in ten from another row."""
    random = np.random.default_rng(7)
    rows = random.integers(0, len(table["age"]), len(table["age"]))
    made = {name: np.asarray(values)[rows].copy() for name, values in table.items()}
    for values in made.values():
        changed = random.random(len(values)) < 0.1
        values[changed] = random.permutation(values)[changed]
    return made


def fresh(table: Any) -> dict[str, Any]:
    """A generator that looks at nothing but how many rows there are."""
    return people(len(table["age"]), 9)


def test_a_slow_obvious_density_agrees() -> None:
    encoding = Encoding.of(OTHERS)
    rows, at = encoding.rows(REAL)[:40], encoding.rows(OTHERS)[:5]
    for place, target in enumerate(at):
        total = 0.0
        for row in rows:
            part = 1.0
            for scale, here, there in zip(encoding.scales, target, row, strict=True):
                if scale.categories is not None:
                    same = here == there or (np.isnan(here) and np.isnan(there))
                    part *= 1 - density.OTHER if same else density.OTHER / (scale.size - 1)
                else:
                    part *= np.exp(-abs(here - there) / density.WIDTH) / (2 * density.WIDTH)
            total += part
        assert density.kernel(encoding, rows, at)[place] == pytest.approx(np.log(total / 40), abs=1e-4)


def test_pairs_count_cells() -> None:
    encoding = Encoding.of({"a": [0, 1], "b": [0, 1]})
    rows = encoding.rows({"a": [0, 0, 1], "b": [1, 1, 0]})
    found = density.pairs(encoding, rows, encoding.rows({"a": [0, 1], "b": [1, 1]}))
    cells = 4 * 4  # two values, one for any other, one for missing
    assert found.tolist() == pytest.approx([np.log(2.5 / (3 + cells / 2)), np.log(0.5 / (3 + cells / 2))])


def test_values_the_reference_does_not_know_and_missing_ones_have_cells_of_their_own() -> None:
    encoding = Encoding.of({"a": ["x", "y"]})
    rows = encoding.rows({"a": ["x", "z", None]})
    assert encoding.cells(rows)[:, 0].tolist() == [0, 2, 3]


@pytest.mark.parametrize("by", ["kernel", "both"])
def test_a_copy_is_found_and_a_stranger_is_not(by: str) -> None:
    records = joined({name: values[:300] for name, values in REAL.items()}, {n: v[:300] for n, v in OTHERS.items()})
    reference = people(600, 3)
    attack = DensityRatio(records, reference, by=by)
    for generator, least, most in ((copied, 0.65, 1.0), (fresh, 0.4, 0.6)):
        scores = attack.score(generator(REAL), range(600))
        beaten = np.mean(scores[:300, None] > scores[None, 300:])
        assert least < beaten < most


def test_shadow_generators_and_closest_record_find_copies() -> None:
    result = attack_table(copied(REAL), REAL, OTHERS, attacks=("shadows", "closest"), generator=copied, shadows=6)
    assert {each.attack: each.design for each in result.evidence} == {
        "shadow generators": "post_hoc", "distance to closest record": "post_hoc",
    }  # fmt: skip
    assert all(each.auc() > 0.65 for each in result.evidence)
    assert "proves nothing" in result.notes[0]


def test_every_record_is_in_half_of_the_shadows() -> None:
    attack = ShadowGenerators(REAL, fresh, OTHERS, shadows=6)
    assert attack.inside.sum(axis=0).tolist() == [3] * 600


def test_one_fit_with_canaries_catches_an_overfit_generator() -> None:
    caught = audit_generator(copied, REAL, canaries=400, seed=2)
    silent = audit_generator(fresh, REAL, canaries=400, seed=2)
    assert caught.design == "canary"
    assert epsilon_at_least(caught, 1e-6, 0.999) > 0.5
    assert epsilon_at_least(silent, 1e-6, 0.999) == 0.0


def test_canaries_keep_the_types_of_columns_and_their_values() -> None:
    made = made_canaries(REAL, 50, seed=1)
    assert {name: values.dtype for name, values in made.items()} == {name: values.dtype for name, values in REAL.items()}
    assert set(made["town"]) <= set("abcdefgh")


def test_noisy_counts_read_the_cells_of_a_record() -> None:
    class Made:
        columns, counts, sigma = (0,), np.array([3.0, 1.0]), 0.5

    class Seen:
        measurements = (Made(),)

    assert NoisyCounts([[0], [1]], [[0], [1]]).score(Seen(), [0, 1]).tolist() == [8.0, 0.0]


# ---- risks -------------------------------------------------------------------------------------------------------------


def test_risks_of_a_copy_and_of_strangers() -> None:
    leaky = [singling_out(REAL, REAL, OTHERS), linkability(REAL, REAL, OTHERS, ["age", "income"], ["town", "size"])]
    assert all(risk.low > 0 for risk in leaky)
    safe = [singling_out(people(600, 9), REAL, OTHERS), inference(people(600, 9), REAL, OTHERS, "town")]
    assert all(risk.low == 0 for risk in safe)


def test_the_blind_guess_does_not_see_the_synthetic_table() -> None:
    """It is the same whether the table is a copy of the members or has nothing to do with them."""
    tables = REAL, people(600, 9), {name: values[:50] for name, values in OTHERS.items()}
    assert len({singling_out(table, REAL, OTHERS).baseline for table in tables}) == 1
    assert len({inference(table, REAL, OTHERS, "town").baseline for table in tables}) == 1
    assert len({inference(table, REAL, OTHERS, "age").baseline for table in tables}) == 1
    copy, strangers = (singling_out(table, REAL, OTHERS) for table in tables[:2])
    assert copy.members > copy.baseline + 0.2
    assert abs(strangers.members - strangers.baseline) < 0.1, "a table of strangers helps as little as knowing the population"


def test_what_the_population_tells_is_no_risk() -> None:
    """The secret follows from what is known, for members and for anybody else."""
    tables = [{"a": (values := np.random.default_rng(seed).integers(0, 9, 500)), "b": values % 3} for seed in range(3)]
    risk = inference(*tables, "b")
    assert risk.members == risk.control == 1.0
    assert (risk.share, risk.low) == (0.0, 0.0)


def test_the_interval_of_a_risk_covers_it() -> None:
    """400 tries; the interval is asked to hold in 95 % and holds in more, since both rates must fail it. Seeded."""
    draw = np.random.default_rng(0)
    truth = (0.4 - 0.25) / (1 - 0.25)
    inside = 0
    for _ in range(400):
        risk = compared("x", draw.random(300) < 0.4, draw.random(300) < 0.25, 0.0, 0.95)
        inside += risk.low <= truth <= risk.high
    assert inside >= 380


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attack_table({"z": [1]}, REAL, OTHERS), "no column in common"),
        (lambda: attack_table(REAL, REAL, {name: values[:5] for name, values in OTHERS.items()}), "at least 20"),
        (lambda: attack_table(REAL, REAL, OTHERS, attacks=["shadows"]), "need the generator"),
        (lambda: attack_table(REAL, REAL, OTHERS, attacks=["magic"]), "attacks must be"),
        (lambda: linkability(REAL, REAL, OTHERS, ["age"], ["age"]), "columns of their own"),
        (lambda: inference(REAL, REAL, OTHERS, "age", ["age"]), "must not be among"),
        (lambda: inference(REAL, REAL, OTHERS, "wealth"), "no column"),
        (lambda: DensityRatio(REAL, OTHERS, by="magic"), "by must be"),
        (lambda: DensityRatio(REAL, {**OTHERS, "town": OTHERS["income"]}), "something else"),
        (lambda: audit_generator(fresh, REAL, canaries=3), "canaries must be"),
    ],
)
def test_bad_input_is_told(call: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        call()


def test_a_record_is_scored_by_itself() -> None:
    """The score of a target does not depend on which others are asked about."""
    for attack in (
        DensityRatio(REAL, OTHERS, by="both"),
        ClosestRecord(REAL),
        ShadowGenerators(REAL, fresh, OTHERS, shadows=2),
    ):
        whole = attack.score(OTHERS, range(50))
        assert attack.score(OTHERS, [7, 3]).tolist() == pytest.approx([whole[7], whole[3]])


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (["34.0", None, "2.5"], ["34", "", "2.50"]),
        (["True", "False", None], ["t", "f", ""]),
        ([True, False, True], [1, 0, 1]),
        ([34, 7, 1], ["034", "7", " 1"]),
        (["02139", "7", "x"], ["02139", "7", " x"]),
        (["A", "7", "8"], ["A ", "7", "8"]),
        ([Decimal("1.10"), None, Decimal("2")], ["1.1", None, "2"]),
        (np.array([0.1, 0.2, np.nan], np.float32), ["0.1", "0.2", ""]),
        (np.array(["2020-01-31T10:00", "NaT", "2020-02-01"], "datetime64[ns]"), ["2020-01-31 10:00:00Z", "", "2020-02-01"]),
        (["2020-01-31", None, "2020-02-01"], ["2020-01-31 00:00:00", None, "2020-02-01 00:00:00"]),
    ],
)
def test_a_value_is_the_same_however_a_file_has_it(made: Any, read: Any) -> None:
    """Either way round: what is attacked may be the CSV file."""
    for first, second in ((made, read), (read, made)):
        one, other = alike({"synthetic table": columns({"c": first}), "members": columns({"c": second})}).values()
        pairs = list(zip(one["c"].tolist(), other["c"].tolist()))
        assert all(a == b or (missing(a) and missing(b)) for a, b in pairs), pairs


@pytest.mark.parametrize(
    ("made", "read"),
    [([True, False], [0, 2]), ([1, 2], ["1", "n/a"]), (["a", "b"], [1.5, 2.5]), ([1], [date(2020, 1, 1)])],
)
def test_values_of_two_kinds_are_refused(made: Any, read: Any) -> None:
    with pytest.raises(InvalidValue, match=r"'c' holds .* in the members"):
        alike({"synthetic table": columns({"c": made}), "members": columns({"c": read})})
