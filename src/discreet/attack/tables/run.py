"""Everything that a finished synthetic table can be asked: membership attacks, and the regulators' three risks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.tables.alike import alike
from discreet.attack.tables.attacks import PROVES_NOTHING, ClosestRecord, DensityRatio, Generator, ShadowGenerators
from discreet.attack.tables.encode import chosen, joined
from discreet.attack.tables.risks import Risk, inference, linkability, singling_out
from discreet.columns import columns
from discreet.core import Attack, Evidence, Game, Unit, check, record
from discreet.errors import InvalidValue

ATTACKS = ("density", "pairs", "closest", "shadows")
LEAST = 20  # rows in the control group


@dataclass(frozen=True, slots=True)
class TableAttack:
    """What was found: evidence by attack, the risks against the control group, and what to say beside them."""

    evidence: tuple[Evidence, ...]
    risks: tuple[Risk, ...]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """The risks as a release tells them."""
        return {"risks": [risk.to_json() for risk in self.risks]}


def attack_table(
    synthetic: Any, members: Any, control: Any, *, attacks: Sequence[str] = ("density", "pairs", "closest"),
    generator: Generator | None = None, shadows: int = 16, secret: str | None = None, targets: int = 1000,
    unit: Unit | None = None, seed: int = 0, confidence: float = 0.95,
) -> TableAttack:  # fmt: skip
    """Attack a synthetic table with rows that its real table had (`members`) and rows that it had not (`control`).

    Half of the control rows are the attacker's public reference, the other half are the non-members in question. The attack
    "shadows" needs the `generator`, which is run `shadows` times on tables of half as many rows. `secret` is the column of the
    inference risk, by default the last. The evidence is `post_hoc`: it warns, and cannot refute; `audit_generator` can.

    >>> rows = {"x": [i % 40 for i in range(400)], "y": [i % 7 for i in range(400)]}
    >>> other = {"x": [i * 3 % 40 for i in range(400)], "y": [i % 5 for i in range(400)]}
    >>> [risk.name for risk in attack_table(rows, rows, other).risks]
    ['singling out', 'linkability', 'inference of y']
    """
    names = [check.word("attacks", name, ATTACKS) for name in attacks]
    ours, theirs, seen = columns(members), columns(control), columns(synthetic)
    shared = [name for name in seen if name in ours and name in theirs]
    if not shared:
        raise InvalidValue("The synthetic table, the members and the control group have no column in common.")
    given = {"synthetic table": seen, "members": ours, "control group": theirs}
    seen, ours, theirs = alike({which: {name: each[name] for name in shared} for which, each in given.items()}).values()
    inside, outside, reference = _sides(ours, theirs, targets, seed)
    records = joined(chosen(ours, inside), chosen(theirs, outside))
    truth = np.arange(len(inside) + len(outside)) < len(inside)
    public = chosen(theirs, reference)
    evidence = []
    for name in names:
        attack = _made(name, records, public, generator, shadows, seed)
        evidence.append(Evidence(
            game=Game(unit or record(), attack.view), attack=attack.name, inside=truth, design="post_hoc",
            score=attack.score(seen, range(len(truth))), run=np.zeros(len(truth), np.int64),
        ))  # fmt: skip
    notes = [PROVES_NOTHING] if "closest" in names else []
    return TableAttack(tuple(evidence), _risks(seen, ours, theirs, secret, seed, confidence), tuple(notes))


def _made(name: str, records: Any, public: Any, generator: Generator | None, shadows: int, seed: int) -> Attack[Any]:
    if name == "closest":
        return ClosestRecord(records)
    if name == "shadows":
        if generator is None:
            raise InvalidValue("Shadow generators need the generator: generator=…, which makes a synthetic table of a table.")
        return ShadowGenerators(records, generator, public, shadows=shadows, seed=seed + 1)
    return DensityRatio(records, public, by="kernel" if name == "density" else "pairs")


def _sides(ours: Any, theirs: Any, targets: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """The members and non-members in question, and the public reference."""
    check.whole("targets", targets)
    sizes = [len(next(iter(each.values()))) for each in (ours, theirs)]
    if sizes[1] < LEAST:
        raise InvalidValue(f"The control group has {sizes[1]} rows; at least {LEAST} are needed, half of them as a reference.")
    random = np.random.default_rng(check.whole("seed", seed, least=0))
    order = random.permutation(sizes[1])
    outside, reference = order[: sizes[1] // 2], order[sizes[1] // 2 :]
    count = min(targets, sizes[0], len(outside))
    return random.choice(sizes[0], count, replace=False), outside[:count], reference


def _risks(seen: Any, ours: Any, theirs: Any, secret: str | None, seed: int, confidence: float) -> tuple[Risk, ...]:
    names = list(seen)
    if len(names) < 2:
        return ()
    asked: dict[str, Any] = {"seed": seed, "confidence": confidence}
    half = len(names) // 2
    return (
        singling_out(seen, ours, theirs, **asked),
        linkability(seen, ours, theirs, names[:half], names[half:], **asked),
        inference(seen, ours, theirs, secret or names[-1], **asked),
    )
