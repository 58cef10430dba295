"""`python -m specli` and the `specli` entry point."""

import sys


def main() -> None:
    """Runs the command line and exits with its code."""
    from specli.cli import main as cli_main
    from specli.cli.streams import prepare_streams

    prepare_streams()
    sys.exit(cli_main())


if __name__ == "__main__":
    main()
