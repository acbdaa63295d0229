"""Merges records that share a parameter: their gradients are summed before a norm is taken.

This covers tied weights, modules called several times, and parameters used both in part and as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import Tensor

from discreet.learn.sgd.engine.tape import Part, Record


class Joined(Record):
    """Several uses of overlapping parameters without a faster method: each unit's gradient is instantiated."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.parameters = list(dict.fromkeys(p for record in records for p in record.parameters))
        self._known: dict[Tensor, Tensor] = {}

    def longest(self) -> Tensor:
        """The squared norms themselves: the instantiated gradients are those that are added, in float32."""
        return self.squared_norms()

    def blank(self, good: Tensor) -> None:
        super().blank(good)
        for record in self.records:
            record.blank(good)

    def instantiate(self) -> dict[Tensor, Tensor]:
        if not self._known:
            for record in self.records:
                for parameter, gradient in record.instantiate().items():
                    known = self._known.get(parameter)
                    self._known[parameter] = gradient if known is None else known + gradient
        return self._known


class Placed(Joined):
    """A use of parts of parameters, expressed as a use of the whole."""

    def __init__(self, record: Record, parts: Mapping[Tensor, Part]) -> None:
        self.record, self.records, self.parts = record, [record], parts
        self.parameters = [parts[p].root if p in parts else p for p in record.parameters]
        self._known = {}

    def instantiate(self) -> dict[Tensor, Tensor]:
        if not self._known:
            for parameter, gradient in self.record.instantiate().items():
                part = self.parts.get(parameter)
                if part is not None:
                    whole = gradient.new_zeros(gradient.shape[0], *part.root.shape)
                    part.of(whole).copy_(gradient)
                    parameter, gradient = part.root, whole
                self._known[parameter] = gradient
        return self._known


def joined(records: Sequence[Record], parts: Mapping[Tensor, Part]) -> list[Record]:
    """The records with those that share a parameter made one."""
    used = [id(p) for record in records for p in record.parameters]
    if not parts and len(set(used)) == len(used):
        return list(records)
    groups: list[list[Record]] = []
    where: dict[Tensor, int] = {}
    for record in _placed(records, parts):
        met = sorted({where[p] for p in record.parameters if p in where})
        home = met[0] if met else len(groups)
        if not met:
            groups.append([])
        for other in met[1:]:
            for moved in groups[other]:
                where.update(dict.fromkeys(moved.parameters, home))
            groups[home] += groups[other]
            groups[other] = []
        groups[home].append(record)
        where.update(dict.fromkeys(record.parameters, home))
    return [_merge(group) for group in groups if group]


def _placed(records: Sequence[Record], parts: Mapping[Tensor, Part]) -> Sequence[Record]:
    """Parts that never overlap count as parameters of their own; overlapping ones are expressed by the whole parameter."""
    if not parts:
        return records
    used = {p for record in records for p in record.parameters}
    spans: dict[Tensor, list[tuple[int, int]]] = {}
    for p in used:
        part = parts.get(p, Part(p, 0, p.shape[0] if p.ndim else 1))
        spans.setdefault(part.root, []).append((part.start, part.stop))
    mixed = {root for root, its in spans.items() if _overlap(its)}
    within = {p: part for p, part in parts.items() if part.root in mixed}
    return [Placed(record, within) if any(p in within for p in record.parameters) else record for record in records]


def _overlap(spans: list[tuple[int, int]]) -> bool:
    return any(end > start for (_, end), (start, _) in pairwise(sorted(spans)))


def _merge(group: list[Record]) -> Record:
    alike: dict[tuple[type, tuple[int, ...]], list[Record]] = {}
    for record in group:
        alike.setdefault((type(record), tuple(map(id, record.parameters))), []).append(record)
    merged = [record for records in alike.values() for record in _folded(records)]
    if len(merged) == 2:
        merged = _pair(merged[0], merged[1])
    return merged[0] if len(merged) == 1 else Joined(merged)


def _folded(records: list[Record]) -> list[Record]:
    """Uses of one layer, joined two by two so that a long sequence is copied a few times, not once for every use."""
    while len(records) > 1:
        paired = [both for i in range(0, len(records), 2) for both in _pair(*records[i : i + 2])]
        if len(paired) == len(records):
            break
        records = paired
    return records


def _pair(first: Record, second: Record | None = None) -> list[Record]:
    if second is None:
        return [first]
    both = first.join(second) or second.join(first)
    return [first, second] if both is None else [both]
