"""The closed tables of what an expression may hold and do, and of what an engine may be asked for.

An operation that is not here cannot be written down, and the writer of SQL does not load if it lacks one. All of them are
strings too, so that messages can name them.
"""

from __future__ import annotations

from enum import StrEnum, auto


class Kind(StrEnum):
    """What an expression holds."""

    INTEGER = auto()
    NUMBER = auto()
    TEXT = auto()
    BOOLEAN = auto()
    DATE = auto()
    TIMESTAMP = auto()
    NULL = auto()  # a NULL that may become any of the others


NUMBERS = (Kind.INTEGER, Kind.NUMBER)
MOST_DIGITS = 308  # of ROUND on either side of the point: as far as powers of ten are doubles
MOMENTS = (Kind.DATE, Kind.TIMESTAMP)


class Op(StrEnum):
    """An operation on one row; its arguments are the operands, and `Scalar.value` an option."""

    COLUMN = auto()
    LITERAL = auto()
    NULL = auto()
    SAME_UNIT = auto()  # two inputs have a row of the same unit

    ADD = auto()
    SUB = auto()
    MUL = auto()
    DIV = auto()
    MOD = auto()
    POWER = auto()
    NEG = auto()
    ABS = auto()
    SIGN = auto()
    SQRT = auto()
    EXP = auto()
    LN = auto()
    LOG2 = auto()
    LOG10 = auto()
    FLOOR = auto()
    CEIL = auto()
    ROUND = auto()
    GREATEST = auto()
    LEAST = auto()
    BUCKET = auto()
    TRUTH = auto()  # 1 for true, 0 for false

    EQ = auto()
    NE = auto()
    LT = auto()
    LE = auto()
    GT = auto()
    GE = auto()
    AND = auto()
    OR = auto()
    NOT = auto()
    IS_NULL = auto()
    CASE = auto()
    COALESCE = auto()

    LOWER = auto()
    UPPER = auto()
    TRIM = auto()
    LENGTH = auto()
    SUBSTRING = auto()
    CONCAT = auto()
    LIKE = auto()

    PART = auto()
    TRUNCATE = auto()
    DAYS = auto()

    TO_INTEGER = auto()
    TO_NUMBER = auto()
    TO_TEXT = auto()
    TO_BOOLEAN = auto()
    TO_DATE = auto()
    TO_TIMESTAMP = auto()

    SUM_OF = auto()  # over the rows of one unit, in a sub-query that groups by it
    AVG_OF = auto()
    MIN_OF = auto()
    MAX_OF = auto()
    COUNT_OF = auto()


GATHERING = (Op.SUM_OF, Op.AVG_OF, Op.MIN_OF, Op.MAX_OF, Op.COUNT_OF)


class OutputOp(StrEnum):
    """What an expression over a released row begins with. Other operations on it are those on one row, `Op`."""

    STATISTIC = auto()
    KEY = auto()
    LITERAL = auto()
    TOTAL = auto()  # of a number, over all released rows that agree on some keys
    GROUPING = auto()  # 1 in rows of grouping sets without the key, else 0


class PlanKind(StrEnum):
    """How the rows of one unit are bounded."""

    ROWS = auto()  # a row is a unit
    WEIGHTED = auto()
    REGISTERED = auto()  # weighted, in a copy of the table that was made before
    SAMPLED = auto()


class TermKind(StrEnum):
    """What is added up of each row."""

    COUNT = auto()
    KNOWN = auto()
    OUTSIDE = auto()
    SUM = auto()
    SQUARE = auto()
    CUT = auto()
    WIDE = auto()
