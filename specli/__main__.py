"""`python -m specli` and the `specli` entry point."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Runs the command line and exits with its code."""
    try:
        from specli.cli import main as cli_main
        from specli.cli.streams import prepare_streams

        prepare_streams()
        code = cli_main()
    except KeyboardInterrupt:  # while modules are read
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
