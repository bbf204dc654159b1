"""``python -m headway``: the same as the command `headway`."""

from headway.cli import main

main()
