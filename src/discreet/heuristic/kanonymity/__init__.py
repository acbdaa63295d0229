"""k-anonymity and its relatives: an anonymiser, the checks, and the breaks."""

from discreet.heuristic.kanonymity.breaks import (
    ClassReading,
    Exposed,
    SecretColumn,
    background,
    homogeneity,
    intersection,
    repeat_rows,
)
from discreet.heuristic.kanonymity.diversity import (
    is_k_anonymous,
    is_l_diverse,
    is_t_close,
    k_anonymity,
    l_diversity,
    t_closeness,
)
from discreet.heuristic.kanonymity.hierarchy import Hierarchy
from discreet.heuristic.kanonymity.mondrian import Anonymised, Composed, KAnonymous, anonymise

__all__ = [
    "Anonymised",
    "ClassReading",
    "Composed",
    "Exposed",
    "Hierarchy",
    "KAnonymous",
    "SecretColumn",
    "anonymise",
    "background",
    "homogeneity",
    "intersection",
    "is_k_anonymous",
    "is_l_diverse",
    "is_t_close",
    "k_anonymity",
    "l_diversity",
    "repeat_rows",
    "t_closeness",
]
