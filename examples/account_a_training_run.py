"""How private is a training run, how much noise would a budget need, and what does that mean for one person?"""

from discreet.accounting import Gaussian, Poisson, Repeat, calibrate, curve

RATE, STEPS, DELTA = 0.01, 2000, 1e-5


def run(noise: float) -> Repeat:
    """What DP-SGD does: every step takes each row with probability RATE, clips, sums and adds noise."""
    return Repeat(Poisson(RATE, Gaussian(noise)), STEPS)


ceiling = curve(run(1.0))
print(f"noise 1.0: epsilon {ceiling.epsilon(DELTA):.3f} at delta {DELTA:g}")
print(f"  any attack finds at most {ceiling.power(0.001):.1%} of members at 0.1 % false alarms")
print(f"  someone 10 % sure that you are in the data can become at most {ceiling.posterior(0.1):.0%} sure")

for epsilon in (1.0, 3.0, 8.0):
    noise = calibrate(run, epsilon=epsilon, delta=DELTA)
    print(f"epsilon {epsilon:g} needs noise {noise:.4f}; the curve says {curve(run(noise)).epsilon(DELTA):.6f}")
