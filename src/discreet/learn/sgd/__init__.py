"""Stochastic gradient descent with a bound on what any one unit can change."""
