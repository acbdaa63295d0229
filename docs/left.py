"""The picture of docs/guides/ledger.md: what is left, and what all answers amount to, after each of many equal answers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from discreet import Ledger
from discreet.accounting import Gaussian, calibrate
from discreet.charts.frame import CEILING, FLOOR, Frame, line, number, on_paper, picture
from discreet.core import Claim, Game, record
from discreet.errors import BudgetExceeded

EPSILON, DELTA, EACH = 4.2, 1e-6, 0.5  # the budget, and the epsilon that each answer was asked for


def points() -> list[tuple[float, float, float]]:
    """Before the first and after every answer that fits: the part used, what is left, and all answers together."""
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=EPSILON, delta=DELTA)
        claim = Claim(game=Game(record(), {"answers"}), event=Gaussian(calibrate(Gaussian, EACH, DELTA)))
        found = []
        while True:
            balance = ledger.balance("people")
            found.append((balance.part_spent, balance.epsilon_left, balance.epsilon_spent))
            try:
                ledger.reserve("people", claim)
            except BudgetExceeded:
                return found


def drawn() -> str:
    found = points()
    frame = Frame((0, len(found) - 1), (0, EPSILON * 1.05), 520, 260)
    body = frame.axes(across=f"answers of ε = {EACH:g} with Gaussian noise", up="ε")
    for place, paint, word, kind in ((1, FLOOR, "left: one more answer of at most", "floor"),
                                     (2, CEILING, "all answers together", "ceiling")):  # fmt: skip
        body += line(frame.path([(i, each[place]) for i, each in enumerate(found)]), kind, paint)
        end = ' text-anchor="end"' if kind == "ceiling" else ""  # above a line that rises
        middle = int(len(found) * 0.42)
        x, y = frame.x(middle), frame.y(found[middle][place])
        body += f'<text x="{x:.0f}" y="{y - 9:.0f}" font-size="12" fill="{paint}"{end}>{word}</text>'
    told = f"After {number(len(found) - 1)} answers {found[-1][2]:.3g} of {EPSILON:g} is spent and {found[-1][1]:.2g} is left."
    return on_paper(picture(body, kind="left", size=(frame.width, frame.height), title="What is left", description=told))


if __name__ == "__main__":
    (Path(__file__).parent / "guides" / "ledger-left.svg").write_text(drawn() + "\n", encoding="utf-8")
    for row in points():
        print(*(f"{each:.4f}" for each in row))
