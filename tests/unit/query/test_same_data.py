"""One set of rows in memory under two names: refused, whatever part of it the second name shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import discreet
from discreet.errors import DiscreetError
from discreet.query.engines.stored import Span, shares_data

QUESTION = "SELECT COUNT(*) AS n, SUM(x) AS s FROM (SELECT x FROM a UNION ALL SELECT x FROM b) q"
ARROW = pa.table({"id": [1, 2, 3, 4], "x": [1.0, 2.0, 3.0, 10.0]})
PANDAS = pd.DataFrame({"x": np.array([1.0, 2.0, 3.0, 10.0])})

PARTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "itself": (ARROW, lambda table: table),
    "fewer columns": (ARROW, lambda table: table.select(["x"])),
    "another name": (ARROW, lambda table: table.rename_columns(["id", "x"])),
    "a slice": (ARROW, lambda table: table.slice(1)),
    "one more column": (ARROW, lambda table: table.append_column("y", pa.array([0, 0, 0, 0]))),
    "later rows": (PANDAS, lambda frame: frame.iloc[1:]),
    "first rows": (PANDAS, lambda frame: frame.iloc[:3]),
}


def ask(a: Any, b: Any) -> discreet.Release[Any]:
    return discreet.connect({"a": a, "b": b}, unit=discreet.record(), bounds={"x": (0, 10)}).sql(QUESTION, epsilon=1.0)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_frame_is_not_another_table(name: str) -> None:
    whole, part = PARTS[name]
    with pytest.raises(DiscreetError, match="the same data as"):
        ask(whole, part(whole))


def test_of_copies_that_cannot_be_seen_the_claim_says_what_it_assumes() -> None:
    (claim,) = ask(ARROW, pa.table({"x": [1.0, 2.0]})).claims
    assert "a record is in one of a, b, not in several: none is a copy of another" in claim.assumptions


spans = st.builds(lambda start, size: Span(start, start + size), st.integers(0, 60), st.integers(1, 9))


@given(st.frozensets(spans, max_size=6), st.frozensets(spans, max_size=6))
def test_spans_that_overlap_are_found(one: frozenset[Span], other: frozenset[Span]) -> None:
    places = [{place for span in side for place in range(span.start, span.stop)} for side in (one, other)]
    assert shares_data(one, other) == bool(places[0] & places[1])
