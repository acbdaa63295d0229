"""Memory that a step frees and the next one needs again.

glibc gives the end of the heap back to the system when it is larger than what was last asked for, and asks for it anew, page
by page, in the next step: a fifth of the time of a small network's step, or nothing, by chance. It counts as large only what
is larger than the largest block ever freed, up to 32 MiB, and gives back only twice that. So one block of that size, never
written to, and freed, lets it keep what steps need. Other systems have other habits, and lose nothing by it.
"""

from __future__ import annotations

import torch

LARGEST = (32 << 20) - (8 << 10)  # bytes; a larger block would not count, and its header must fit


def keep_what_is_freed() -> None:
    torch.empty(LARGEST, dtype=torch.uint8)
