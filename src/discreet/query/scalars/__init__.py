"""Expressions over one row: from SQL to the closed table of operations, with their kinds and bounds.

`expression` reads them, by the rules for numbers, conditions, texts, dates and casts that the other files hold; `operands` is
what those rules share. A new function of SQL is a rule in one of them, and an operation in engines/expressions.py if none will
do.

Every operation is total: where SQL would raise an error (a division by zero, a cast that fails, the root of a negative
number), the result is NULL, so that no error can tell what is in a row.
"""
