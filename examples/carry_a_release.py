"""A count with its claim, carried through post-processing and a file."""

import tempfile
from pathlib import Path

import discreet
from discreet.accounting import curve
from discreet.noise import LaplaceNoise

visits = [("ann", 3), ("bob", 1), ("cat", 7), ("dan", 2)]

# At most 8 visits per person are counted, so one person moves the sum by at most 8.
person = discreet.user("name", rows=1)
mechanism = LaplaceNoise(scale=16, sensitivity=8, unit=person)
total = sum(min(number, 8) for _, number in visits)

release = discreet.Release(value=mechanism.run(total), source="visits", claims=mechanism.claims())
published = release.map(lambda number: max(0, number))  # post-processing costs nothing

with tempfile.TemporaryDirectory() as folder:
    path = published.save(Path(folder) / "release.json")
    again = discreet.Release.load(path)

claim = again.claims[0]
print(f"published {again.value} from {again.source}")
print(f"unit: {claim.game.unit}")
print(f"epsilon at most {curve(claim.event).epsilon(0)}")
assert again == published
