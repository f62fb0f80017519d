"""python -m oriel: the parts of the `oriel` command that need JAX."""

import sys


def main(arguments):
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "bench":
        from oriel import bench

        return bench.main(rest)
    if command == "verify":
        from oriel import _verify

        return _verify.main(rest)
    print(f"python -m oriel: no command {command!r}; there is: bench, verify", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
