#!/bin/sh
# Prints the Python to use: python3 when it is 3.11 or newer, else the newest
# other one found, else nothing.
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        command -v "$candidate"
        exit 0
    fi
done
