"""PostgreSQL's catalogue: tables with their columns, kinds, how unit keys are compared, and whether they are base tables."""

from __future__ import annotations

from discreet.query.engines.stored import DOUBLE, NO_RULE, TEXT, WHOLE, WIDE

CATALOGUE = """
WITH RECURSIVE wanted AS (
  SELECT n.oid, n.nspname, w.place FROM unnest(%(schemas)s::text[]) WITH ORDINALITY AS w (name, place)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.name
), base AS (
  SELECT oid AS type, oid AS at FROM pg_catalog.pg_type WHERE typtype <> 'd'
  UNION ALL
  SELECT t.oid, b.at FROM pg_catalog.pg_type t JOIN base b ON t.typbasetype = b.type WHERE t.typtype = 'd'
), child AS (
  SELECT inhparent AS top, inhrelid AS of FROM pg_catalog.pg_inherits
  UNION
  SELECT h.top, i.inhrelid FROM child h JOIN pg_catalog.pg_inherits i ON i.inhparent = h.of
), made AS (
  SELECT c.oid AS top, c.oid AS of FROM pg_catalog.pg_class c JOIN wanted n ON n.oid = c.relnamespace WHERE c.relkind = 'v'
  UNION
  SELECT m.top, d.refobjid FROM made m JOIN pg_catalog.pg_rewrite r ON r.ev_class = m.of
  JOIN pg_catalog.pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
)
SELECT c.oid, n.nspname, c.relname, a.attname, t.typname, t.typcategory,
  (SELECT k.collisdeterministic FROM pg_catalog.pg_collation k WHERE k.oid = a.attcollation) IS NOT FALSE AS exact,
  CASE
    WHEN c.relkind = 'v' THEN 'a view'
    WHEN c.relkind = 'm' THEN 'a materialised view'
    WHEN c.relkind = 'f' THEN 'a foreign table'
    WHEN row_security_active(c.oid) THEN 'a table under row-level security'
    WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid) THEN 'a child of another table'
    WHEN EXISTS (SELECT FROM child h JOIN pg_catalog.pg_class d ON d.oid = h.of WHERE h.top = c.oid AND (
      d.relkind NOT IN ('r', 'p') OR (SELECT count(*) FROM pg_catalog.pg_inherits i WHERE i.inhrelid = d.oid) > 1
    )) THEN 'a parent of tables that are foreign, or children of others too'
  END AS derived,
  (SELECT md5(string_agg(pg_get_viewdef(v.oid), ';' ORDER BY v.oid)) FROM made m JOIN pg_catalog.pg_class v ON v.oid = m.of
    WHERE m.top = c.oid AND v.relkind IN ('v', 'm')) AS text
FROM pg_catalog.pg_class c
JOIN wanted n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'
JOIN base b ON b.type = a.atttypid
JOIN pg_catalog.pg_type t ON t.oid = b.at
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname NOT LIKE 'pg_temp%%' AND has_column_privilege(c.oid, a.attnum, 'SELECT')
ORDER BY n.place, c.relname, a.attnum
"""


def kind_of(base: str, category: str) -> str:
    """The kind of a PostgreSQL type; a domain has the kind of its base type."""
    known = {"int2": "integer", "int4": "integer", "int8": "integer", "float4": "number", "float8": "number",
             "numeric": "number", "bool": "boolean", "date": "date", "timestamp": "timestamp", "timestamptz": "timestamp",
             "uuid": "text"}  # fmt: skip
    return known.get(base, "text" if category in ("S", "E") else "other")


def rule_of(base: str, category: str) -> str:
    """How unit keys of a type are compared. Texts of types with an equality of their own, such as citext, have no rule."""
    known = {"int2": WHOLE, "int4": WHOLE, "int8": WHOLE, "numeric": WIDE, "float4": DOUBLE, "float8": DOUBLE,
             **dict.fromkeys(("text", "varchar", "bpchar", "name"), TEXT)}  # fmt: skip
    if base in known:
        return known[base]
    if category == "E":
        return TEXT
    return base if category not in ("S", "U") and kind_of(base, category) != "other" else "uuid" if base == "uuid" else NO_RULE
