"""A small private report with exact noise: counts, a sum, a choice and an alarm, each with its claim and its error."""

import discreet
from discreet.accounting import curve
from discreet.noise import (
    AboveThreshold,
    BoundedSum,
    LaplaceNoise,
    PermuteAndFlip,
    discrete_laplace_error,
    exponential_error,
)

# One row per patient: ward and days in hospital. One stay was entered wrongly.
patients = [("eye", 2.0), ("heart", 9.5), ("heart", 7.0), ("eye", 1.5), ("ear", float("nan")), ("heart", 1e9)] * 40
wards = ["ear", "eye", "heart"]  # public, not read off the data
unit = discreet.record()


def show(title, mechanism, answer, error):
    epsilon = curve(mechanism.claims()[0].event).epsilon(0)
    print(f"{title:28} {answer!s:>22}   epsilon {epsilon:.3g}   95% within {error}")


counts = [sum(ward == name for name, _ in patients) for ward in wards]
mechanism = LaplaceNoise(scale=2, sensitivity=1, unit=unit)
show("patients in ear, eye, heart", mechanism, mechanism.run(counts), discrete_laplace_error(2, 0.95))

# Days are clipped to [0, 30] and rounded to half days before they are added: NaN and 1e9 are one contribution each.
mechanism = BoundedSum(lower=0, upper=30, granularity=0.5, noise="laplace", scale=60, unit=unit)
show("days in all", mechanism, mechanism.run([days for _, days in patients]), discrete_laplace_error(120, 0.95) / 2)

mechanism = PermuteAndFlip(epsilon=0.5, sensitivity=1, unit=unit)
chosen = wards[mechanism.run(counts)]
show("fullest ward", mechanism, chosen, f"{exponential_error(3, 0.5, 1, 0.95):.0f} patients of the fullest")

daily = [31, 28, 35, 160, 30]  # admissions; the whole list of answers costs epsilon once
mechanism = AboveThreshold(threshold=100, epsilon=1, sensitivity=1, granularity=1, most=1, unit=unit)
alarms = mechanism.run(daily)
show("first day above 100", mechanism, alarms.index(True) + 1 if True in alarms else "none", "see sparse_vector_error")
