"""``python -m maxtool``, and the ``maxtool`` command."""

from maxtool.cli.interrupts import end_at_once


def run() -> None:
    """Run the command line of this process, and end it."""
    end_at_once()
    from maxtool.cli.process import main

    main()


if __name__ == "__main__":
    run()
