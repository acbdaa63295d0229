"""The demonstration: a model that leaks, the same model trained privately, questions in SQL, one budget, one report.

`run` does all of it in one folder and returns a `Story`: the releases by name, and what happened. All data is synthetic.

hospital.py    the synthetic patients, their budget, the questions in SQL
diagnosis.py   the two models, and the same attack on both
counting.py    a noisy count and a broken control, where torch is not installed
web.py         the files with which `discreet serve` continues from the demo
picture.py     the plot of both models
"""

from __future__ import annotations

from discreet.demo.story import Story, run

__all__ = ["Story", "run"]
