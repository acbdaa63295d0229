"""A right mechanism and its broken twin, audited: the claim of one holds, the claim of the other is refuted."""

import discreet
from discreet.audit import Pair, Readout, check_mechanism, rates, roc, verdict
from discreet.core import Claim, DiscreteLaplace, Game
from discreet.errors import ClaimRefuted
from discreet.noise import LaplaceNoise, discrete_laplace

visits = [3, 1, 7, 2]
without_bob = [3, 7, 2]


class CountPeople:
    """How many people there are, with epsilon 1."""

    noise = LaplaceNoise(scale=1, sensitivity=1, unit=discreet.record())

    def claims(self):
        return self.noise.claims()

    def run(self, data):
        return self.noise.run(len(data))

    def neighbours(self):
        yield visits, without_bob


class CountVisits(CountPeople):
    """The same noise on the number of visits, which one person can move by more than one."""

    def claims(self):
        game = Game(discreet.record(), {"answers"})
        return (Claim(game=game, event=DiscreteLaplace(scale=1.0, sensitivity=1)),)

    def run(self, data):
        return sum(data) + int(discrete_laplace(1))

    def neighbours(self):
        yield visits, [1, 7, 2]  # without the person who came three times


# Any mechanism: a distinguisher learns on half of the runs and is judged on the other half.
for mechanism in (CountPeople(), CountVisits()):
    try:
        [(evidence, found)] = check_mechanism(mechanism, runs=3000, confidence=0.999)
        print(f"{type(mechanism).__name__}: {found}")
    except ClaimRefuted as refuted:
        print(f"refuted: {refuted}")

# An attack of one's own: the released number is the score.
mechanism = CountPeople()
evidence = discreet.audit(mechanism, Readout(), Pair(visits, without_bob), runs=3000)
print(verdict(mechanism.claims()[0], evidence, confidence=0.95))
print(f"area under the ROC {roc(evidence.score, evidence.inside).area():.3f}")
for rate in rates(evidence.score, evidence.inside):
    print(rate)
