"""``python -m maxtool``, and the ``maxtool`` command."""

import gc

from maxtool.cli.interrupts import end_at_once

# Most of what a command imports stays to its end: Python's own number would have it looked at
# hundreds of times, a tenth of the time of starting.
COLLECT_AFTER = 50_000


def run() -> None:
    """Run the command line of this process, and end it."""
    end_at_once()
    gc.set_threshold(COLLECT_AFTER)
    from maxtool.cli.process import main

    main()


if __name__ == "__main__":
    run()
