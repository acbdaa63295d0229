"""What a Spark DataFrame is made of, read off its analysed plan: stored rows one by one, or something else.

A frame counts as stored rows where its plan selects, renames and filters the rows of one table, each by itself, with nothing
that could fail on a value. Anything else is derived: a join repeats rows, a window or a group looks at others' rows, and a
file of text may have types that were guessed from its rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

ROW_BY_ROW = ("Project", "Filter", "SubqueryAlias", "View")
LEAVES = ("LogicalRDD", "LocalRelation", "ExternalRDD", "Range", "HiveTableRelation", "DataSourceV2Relation", "RelationV2")
FORMATS = ("parquet", "orc", "delta", "iceberg", "avro")
HARMLESS = {
    "AttributeReference", "Alias", "Literal", "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan",
    "GreaterThanOrEqual", "And", "Or", "Not", "IsNull", "IsNotNull", "In", "InSet", "Coalesce",
}  # fmt: skip


def derived(frame: Any) -> tuple[str, frozenset[Hashable]]:
    """Why the rows of a frame need not be rows of one unit each (empty: they are stored), and marks of what it reads."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return "a frame whose plan cannot be looked at from here", frozenset()
    return _walk(plan.queryExecution().analyzed(), frame.sparkSession)


def _walk(plan: Any, session: Any) -> tuple[str, frozenset[Hashable]]:
    name = str(plan.nodeName())
    children = list(_items(plan.children()))
    if not children:
        return _leaf(plan, name, session)
    if name.split()[0] not in ROW_BY_ROW or len(children) != 1:
        return f"a frame made by {name}", frozenset()
    if not all(_harmless(expression) for expression in _items(plan.expressions())):
        return f"a frame made by {name} with computed values", frozenset()
    return _walk(children[0], session)


def _leaf(plan: Any, name: str, session: Any) -> tuple[str, frozenset[Hashable]]:
    name = name.split()[0]
    if name in ("LogicalRelation", "Relation"):
        relation = plan.relation()
        if not hasattr(relation, "fileFormat") or str(relation.getClass().getSimpleName()) != "HadoopFsRelation":
            return "read from another system", frozenset()
        form = str(relation.fileFormat().getClass().getSimpleName()).lower()
        if not form.startswith(FORMATS):
            return "read from files of text, whose types may have been guessed from their rows", frozenset()
        paths = sorted(str(path) for path in _items(relation.location().rootPaths()))
        return "", frozenset([tuple(paths)])
    if name not in LEAVES:
        return f"a frame made by {name}", frozenset()
    if name == "LogicalRDD":
        return "", frozenset([("rdd", int(plan.rdd().id()))])
    return "", frozenset([("plan", int(session.sparkContext._jvm.java.lang.System.identityHashCode(plan)))])


def _harmless(expression: Any) -> bool:
    """Whether an expression depends on its own row alone and fails on no value."""
    if expression.foldable():
        return True
    name = str(expression.getClass().getSimpleName())
    return name in HARMLESS and all(_harmless(child) for child in _items(expression.children()))


def _items(sequence: Any) -> Iterator[Any]:
    """The members of a Scala sequence."""
    for place in range(int(sequence.size())):
        yield sequence.apply(place)
