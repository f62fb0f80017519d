"""oriel bench: ours and its peers, measured side by side."""

import json
import shlex
import sys

from oriel.bench import arguments, bars, launch, machine, native, plan, table
from oriel.bench.progress import Progress

METHOD = {
    "jax": (
        "every repetition calls ours and each peer once, in random order, the same in all "
        "processes; the processes meet before each call; each call blocks until its result is "
        "ready; a call takes as long as its slowest process; medians over the repetitions; "
        "spread: distance of the quartiles / median; ratio: peer / ours; a shortfall is even "
        "where the 95 % interval of the repetitions' ratios (sign test) holds the bar"
    ),
    "c": (
        "C programs that share one timing loop; ours and MPI's are started by turns, one at a "
        "time, for a number of rounds; per round and size: warm-up, a check of the result, and 9 "
        "batches of calls; a batch takes as long as its slowest rank; a round's figure is the "
        "median of its batches; medians over the rounds; spread: distance of the quartiles / "
        "median; ratio: the median of the rounds' MPI / ours; a shortfall is even where the 95 % "
        "interval of the rounds' ratios (sign test) holds the bar"
    ),
}


def _print_rows(wanted, rows):
    for nbytes in wanted.sizes:
        print(table.line([row for row in rows if row["bytes"] == nbytes]), flush=True)


def _measure_jax(wanted, checked):
    """Prints each size as it is done: a run takes minutes."""
    progress = Progress(len(wanted.sizes))
    rows = []
    progress.show(table.size_text(wanted.sizes[0]))
    try:
        for done, reports in enumerate(launch.reports(wanted), start=1):
            nbytes = reports[0]["bytes"]
            names = (plan.OURS, *wanted.peers)
            samples = {name: table.slowest(reports, name) for name in names}
            new = table.make_rows(wanted, nbytes, samples)
            if checked:
                bars.judge(wanted, new)
            progress.clear()
            print(table.line(new), flush=True)
            progress.step()
            if done < len(wanted.sizes):
                progress.show(table.size_text(wanted.sizes[done]))
            rows += new
    finally:
        progress.clear()
    return rows


def _measure_c(wanted, checked):
    progress = Progress(native.steps(wanted))
    try:
        progress.show("building")
        samples = native.measure(wanted, progress)
    finally:
        progress.clear()
    rows = [row for size in wanted.sizes for row in table.make_rows(wanted, size, samples[size])]
    if checked:
        bars.judge(wanted, rows)
    _print_rows(wanted, rows)
    return rows


def _measure(wanted, checked):
    print(wanted.title)
    print(table.header(wanted), flush=True)
    return (_measure_c if wanted.level == "c" else _measure_jax)(wanted, checked)


def _say_verdicts(verdicts):
    """Returns the number of misses."""
    short = [verdict for verdict in verdicts if not verdict["met"]]
    misses = [verdict for verdict in short if not verdict["even"]]
    for verdict in verdicts:
        if verdict["bytes"] is None:
            word = "met" if verdict["met"] else "missed"
            print(f"{word}: {verdict['bar']}, it is {verdict['figure']:.2f}")
    print(bars.sentence(verdicts))
    for verdict in short:
        if verdict["bytes"] is not None:
            word = "even" if verdict["even"] else "missed"
            size = table.size_text(verdict["bytes"])
            print(f"{word} at {size}: {verdict['bar']}, it is {verdict['figure']:.2f}")
    return len(misses)


def write_json(path, words, origin, **content):
    result = {"command": shlex.join(["oriel", "bench", *words])} | origin | content
    with open(path, "w") as out:
        json.dump(result, out, indent=1)
        out.write("\n")


def _details(plans):
    """What the JSON says of how it was measured, beyond the machine."""
    details = {"method": {wanted.level: METHOD[wanted.level] for wanted in plans}}
    for wanted in plans:
        if wanted.level == "c":
            details |= {"rounds": wanted.rounds, "bind": wanted.bind}
        if "mpi" in wanted.peers:
            command = native.mpirun_command(wanted.processes)
            details["mpi"] = {"version": native.mpi_version(), "command": shlex.join(command)}
    return details


def _run(words, a, plans):
    origin = machine.describe()
    rows, verdicts = [], []
    for number, wanted in enumerate(plans):
        if number > 0:
            print()
        rows += _measure(wanted, a.check)
        if a.check:
            verdicts += bars.judge(wanted, [row for row in rows if row["level"] == wanted.level])
    misses = _say_verdicts(verdicts) if a.check else 0
    details = _details(plans) | {"rows": rows} | ({"bars": verdicts} if a.check else {})
    if a.json is not None:
        write_json(a.json, words, origin, **details)
    if a.plot is not None:
        from oriel.bench import plot

        plot.save(plot.draw({**origin, **details}), a.plot)
    return 1 if a.strict and misses else 0


def main(words):
    try:
        if words[:1] == ["startup"]:
            from oriel.bench import startup

            return startup.main(words[1:])
        return _run(words, *arguments.read(words))
    except launch.LaunchError as error:
        print(f"oriel bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
