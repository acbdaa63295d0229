"""Where torch is not installed, as after `make demo`, the user is told what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

BARE = "import sys; sys.modules['torch'] = None; "
ROWS = "rows = lambda: (np.random.rand(5, 2), np.zeros(5, int)); "


@pytest.mark.parametrize(
    "program",
    [
        "import discreet; discreet.learn.train",
        "import discreet; discreet.learn.layers",
        "import discreet; discreet.learn.table",
        "import discreet, numpy as np; " + ROWS + "discreet.attack.membership(lambda x: np.zeros((len(x), 2)), "
        "discreet.models.Recipe(lambda: 1), rows(), rows())",
        "from discreet.cli import app; app(['train', 'absent.toml'])",
    ],
)
def test_what_to_install_is_told(program):
    done = subprocess.run([sys.executable, "-c", BARE + program], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "pip install 'discreet-privacy[torch]'" in " ".join(done.stderr.split())
    assert "fault in discreet" not in done.stderr
