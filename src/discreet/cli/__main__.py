"""`python -m discreet.cli` is `discreet`."""

from discreet.cli import main

main()
