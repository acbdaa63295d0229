"""DuckDB's types: which kind a column holds, and how unit keys of a type are compared."""

from __future__ import annotations

from discreet.errors import InvalidValue
from discreet.query.engines.stored import DOUBLE, NO_RULE, TEXT, WHOLE, WIDE


def kind_of(name: str) -> str:
    head = name.upper().split("(")[0]
    if name.endswith("]"):
        return "other"
    if head in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return "integer"
    if head in ("HUGEINT", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL"):
        return "number"
    if head in ("VARCHAR", "ENUM", "UUID"):
        return "text"
    return {"BOOLEAN": "boolean", "DATE": "date"}.get(head, "timestamp" if head.startswith("TIMESTAMP") else "other")


def rule_of(name: str) -> str:
    """How unit keys of a type of DuckDB are compared."""
    head, _, options = name.upper().partition("(")
    if name.endswith("]"):
        return NO_RULE
    if head == "DECIMAL":
        scale = options.rstrip(")").split(",")[-1].strip()
        return WIDE if scale == "0" else f"decimal {scale}"
    if head in ("FLOAT", "DOUBLE"):
        return DOUBLE
    if head in ("VARCHAR", "ENUM"):
        return TEXT
    if head in ("HUGEINT", "UBIGINT", "UHUGEINT"):
        return WIDE
    return WHOLE if kind_of(name) == "integer" else head.lower() if kind_of(name) != "other" else NO_RULE


def collated(sql: str) -> set[str]:
    """The columns with a collation of their own; if the statement cannot be read, a mark that none can be trusted."""
    import sqlglot
    from sqlglot import exp

    if "collate" not in sql.lower():
        return set()
    try:
        columns = sqlglot.parse_one(sql, read="duckdb").find_all(exp.ColumnDef)
    except sqlglot.errors.SqlglotError:
        raise InvalidValue("A table has a collation that cannot be read here. Make a table without it.") from None
    return {column.name for column in columns if column.find(exp.CollateColumnConstraint, exp.Collate)}
