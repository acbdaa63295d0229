"""The answer as an Arrow table, its column names, and its serialised form in a ledger."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query import arrow
from discreet.query.after import Chosen, evaluate
from discreet.query.answer import Noisy, Together, shown_plan
from discreet.query.cut import KEY, note
from discreet.query.explain import shown_noise
from discreet.query.operations import NUMBERS, Kind, OutputOp
from discreet.query.price import Priced
from discreet.query.tree import Output
from discreet.query.values import missing

if TYPE_CHECKING:
    import pyarrow as pa

ENDS = ("", "_low", "_high")  # of the names of a number and of its interval


def column_names(priced: Priced) -> list[str]:
    """The names of all columns of the answer."""
    names = []
    for name, output in zip(priced.question.names, priced.question.outputs):
        names += [name + end for end in ENDS] if has_interval(output) else [name]
    return names + [share.name + end for share in priced.shares for end in ENDS]


def has_interval(output: Output) -> bool:
    """Whether a column is a number that noise moves; keys, what is made of keys, texts and truth values stand alone."""
    return output.kind in NUMBERS and bool(output.statistics())


def answer_table(noisy: Noisy | Together, left: Chosen, places: np.ndarray[Any, Any], nonnegative: bool) -> pa.Table:
    """The rows at these places of those that are left, in this order, with the ends of an interval beside each number."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    question, known = noisy.priced.question, left.keys
    for name, output in zip(question.names, question.outputs):
        if output.op == OutputOp.LITERAL:
            columns[name] = arrow.constant(output.value, len(places))
            continue
        if output.op == OutputOp.KEY:
            columns[name] = arrow.column([known[place][output.value] for place in places], output.kind)
            continue
        value, low, high = (np.asarray(part)[places] for part in evaluate(output, left))
        if not has_interval(output):
            kind = Kind.NUMBER if output.kind in NUMBERS else output.kind
            columns[name] = arrow.column([None if missing(one) else one for one in value.tolist()], kind)
            continue
        for suffix, part in zip(ENDS, (value, low, high)):
            column = np.asarray(part, float)
            columns[name + suffix] = arrow.known(np.maximum(column, 0.0) if nonnegative else column)
    for name, share in noisy.priced.shares:
        for suffix, part in zip(ENDS, noisy.statistic(share, left.confidence)):
            columns[name + suffix] = arrow.numbers(part[left.rows[places]])
    return pa.Table.from_arrays(list(columns.values()), names=list(columns)).replace_schema_metadata(_metadata(noisy, left))


def _metadata(noisy: Noisy | Together, left: Chosen) -> dict[str, str]:
    """What is told of the whole answer."""
    told = noisy.cut and note(noisy.cut, noisy.priced.plan.rows)
    return {"discreet": _note(noisy, left), **({KEY: told} if told else {})}


def bounding_note(answer: pa.Table) -> str | None:
    """What an answer tells of the rows that bounding cut, where there is something to tell."""
    told = (answer.schema.metadata or {}).get(KEY.encode())
    return None if told is None else told.decode()


def _note(noisy: Noisy | Together, left: Chosen) -> str:
    shares, kind = ", ".join(share.name for share in noisy.priced.shares), shown_noise(noisy.priced)
    plans = "; ".join(dict.fromkeys(shown_plan(one.plan) for one in noisy.priced.sets))
    some = left.shown < len(noisy.keys)
    return (
        (
            f"intervals hold the answer without noise with probability {noisy.confidence:g} each; the error that bounding "
            f"({plans}) and clamping to bounds bring is not included"
        )
        + (
            f"; noise chose {left.shown} of {len(noisy.keys)} rows: intervals are wider, for that to hold of those"
            if some
            else ""
        )
        + (f"; how much of the data they touch: {shares}" if shares else "")
        + (f"; noise: {kind}" if kind else "")
    )


def to_text(table: pa.Table) -> str:
    """The table as the ledger keeps it, for when the same is asked again."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")


def from_text(text: Any) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(base64.b64decode(text)).read_all()
