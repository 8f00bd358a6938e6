"""Side by side with peers: `make bench` runs it, benchmarks/ has it."""

from benchmarks.__main__ import main, parser

__all__ = ["main", "parser"]

if __name__ == "__main__":
    main()
