"""A poll and a mean without a trusted collector: what each person sends, what is learned, and what it costs."""

from discreet.accounting import curve
from discreet.query import local

# The lecture's question: yes or no, by the coin. Truth: 30 of 100 say yes.
coin = local.Coin()
reports = coin.encode([1] * 3000 + [0] * 7000)
found = coin.estimate(reports, confidence=0.95)
told = reports.mean()
print(f"told yes {told:.3f}; p = 2 x told - 1/2 = {2 * told - 0.5:.3f}; between {found.low[1]:.3f} and {found.high[1]:.3f}")
print(f"epsilon of one report: {curve(coin.claims()[0].event).epsilon(0):.4f} (ln 3)")

# One of many public categories: the oracle is chosen by its variance.
pages = [f"page {number}" for number in range(200)]
poll = local.frequency(epsilon=1.0, categories=pages)
visits = ["page 7"] * 12_000 + ["page 42"] * 6000 + pages * 10
shares = poll.estimate(poll.encode(visits), confidence=0.95)
best = sorted(shares, key=lambda row: -row[1])[:2]
print(f"{type(poll).__name__}: " + "; ".join(f"{page} {share:.2f} [{low:.2f}, {high:.2f}]" for page, share, low, high in best))

# Numbers between public bounds.
hours = local.mean(epsilon=2.0, lower=0, upper=24)
mean = hours.estimate(hours.encode([0.5, 2.25, 3.0, float("nan")] * 5000), confidence=0.95)
print(f"{type(hours).__name__}: {mean.estimate:.2f} hours, between {mean.low:.2f} and {mean.high:.2f}")

# The same reports through a shuffler that forgets who sent which.
(claim,) = poll.shuffled(users=20_000)
print(f"shuffled among 20,000: epsilon {curve(claim.event).epsilon(1e-6):.3f} at delta 1e-6, instead of 1")
