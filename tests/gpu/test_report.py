"""report.py must tell results that are current from those that are not."""

import sys

from report import judge, judge_rows, read_stale

THEN = {"src/a.cu": "1", "src/b.cu": "2"}

# digests now, lines of stale.txt, the status, part of the sentence
TRIALS = [
    (THEN, "", 0, ""),
    (THEN, "# src/a.cu | a comment\n\n", 0, ""),
    (THEN | {"src/a.cu": "3"}, "", 1, "changed since: src/a.cu; run tests/gpu/run.sh"),
    ({"src/a.cu": "1"}, "", 1, "changed since: src/b.cu;"),
    (THEN | {"src/c.cu": "3"}, "", 1, "changed since: src/c.cu;"),
    (THEN | {"src/a.cu": "3"}, "src/a.cu | due", 77, "known to be stale for src/a.cu: due"),
    (THEN | {"src/a.cu": "3"}, "src/*.cu | due", 1, "changed since: src/a.cu;"),
    (THEN | {"src/a.cu": "3"}, "src/a.cu", 1, "says not why: src/a.cu"),
    (THEN | {"src/a.cu": "3"}, "src/b.cu | due", 1, "changed since: src/a.cu;"),
    ({"src/a.cu": "3", "src/b.cu": "4"}, "src/a.cu | due", 1, "changed since: src/b.cu;"),
    (THEN, "src/a.cu | due", 1, "current for src/a.cu: remove"),
    (THEN | {"src/b.cu": "3"}, "src/b.cu | due\nsrc/a.cu | due", 1, "current for src/a.cu: remove"),
]


def main():
    failed = False
    for now, text, status, part in TRIALS:
        found = judge(now, [THEN, THEN], read_stale(text))
        if found[0] != status or part not in found[1] or (status == 0 and found[1]):
            print(f"{now} with {text!r} gave {found}, wanted {status} and {part!r}")
            failed = True
    # A listed source may be due on one kind of GPU alone.
    found = judge(THEN, [THEN, THEN | {"src/a.cu": "0"}], {"src/a.cu": "due"})
    rows = [{"name": "one", "outcome": outcome, "detail": ""} for outcome in ("skipped", "FAILED")]
    statuses = [found[0], judge(THEN, [], {})[0], judge_rows("h", rows)[0]]
    statuses += [judge_rows("h", rows[:1])[0], judge_rows("h", [])[0]]
    if statuses != [77, 1, 1, 77, 0]:
        print(f"statuses are {statuses}")
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
