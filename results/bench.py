"""Side by side with peers: `make bench` runs it, benchmarks/ has it."""

from benchmarks import __main__ as benchmark

parser, main = benchmark.parser(), benchmark.main

if __name__ == "__main__":
    main()
