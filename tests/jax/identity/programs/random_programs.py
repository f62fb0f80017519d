"""Random programs, the same on all processes but for what may differ, against NumPy.

    random_programs.py SEED [COUNT [FUNCTIONS [CALLS [MODE]]]]

For each of COUNT seeds from SEED on: FUNCTIONS are drawn from the seed, and CALLS of them, each
with one of three shapes of operands. Then each process draws for itself, which of them it
compiles ahead, in which order, from how many threads, how often, and what it compiles when it
comes to it. All make the calls in the order drawn and compare each result.

With CACHE, a folder, in the environment, a process keeps what it compiles in a folder there, or
does not, as it draws.

MODE differ: one process's program has a call that the others' have not, and each must hear so."""

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import oriel
from common import report
from drawing import draw_program

WINDOW = 4  # calls that are dispatched before the first result is looked at


class Process:
    """What this process does with a program of its seed."""

    def __init__(self, seed, functions, calls, odd=(None, None)):
        self.rng = random.Random(f"process {seed} {oriel.rank()}")
        self.functions, self.calls = functions, calls
        self.made = [f.make(oriel.rank(), odd, self.rng.random() < 0.2) for f in functions]
        self.ahead = {}

    def lower(self, call):
        function = self.functions[call.function]
        operand = function.operand(call.table(function, oriel.size()), oriel.rank())
        return self.made[call.function].lower(operand, np.int32(0))

    def compile(self, call):
        """One more executable of what is called."""
        compiled = self.lower(call).compile()
        self.ahead.setdefault((call.function, call.operand), []).append(compiled)

    def compile_some(self):
        """Ahead, in any order, from several threads or from this one."""
        calls = {(call.function, call.operand): call for call in self.calls}
        some = [call for call in calls.values() if self.rng.random() < 0.6]
        some += [call for call in some if self.rng.random() < 0.15]
        self.rng.shuffle(some)
        if self.rng.random() < 0.5:
            for call in some:
                self.compile(call)
        else:
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(self.compile, some))

    def start(self, call):
        """Dispatches one call, by whatever has been compiled or not."""
        function = self.functions[call.function]
        operand = function.operand(call.table(function, oriel.size()), oriel.rank())
        executables = self.ahead.get((call.function, call.operand), [])
        if self.rng.random() < 0.03:
            jax.clear_caches()
        if executables and self.rng.random() < 0.8:
            return self.rng.choice(executables)(operand, np.int32(call.k))
        k = self.rng.choice([call.k, np.int32(call.k)])
        return self.made[call.function](operand, k)

    def check(self, call, result):
        function = self.functions[call.function]
        owners = [device.process_index * jax.local_device_count() for device in jax.devices()]
        expected = function.expected(call.table(function, oriel.size()), call.k, owners)
        if function.shape is None:
            np.testing.assert_array_equal(result, expected[oriel.rank()])
            return
        expected = expected.reshape(-1, *expected.shape[2:])
        for shard in result.addressable_shards:
            np.testing.assert_array_equal(shard.data, expected[shard.index])

    def run(self):
        self.compile_some()
        under_way = []
        for i, call in enumerate(self.calls):
            under_way.append((i, call, self.start(call)))
            if len(under_way) == WINDOW or i + 1 == len(self.calls):
                for number, call, result in under_way:
                    self.look(number, call, result)
                under_way = []

    def look(self, number, call, result):
        try:
            self.check(call, result)
        except Exception as error:
            error.add_note(f"in call {number}, {call}, of {self.functions[call.function]}")
            raise


def run_seed(seed, functions, calls):
    one_device = oriel.local_size() == 1
    drawn = draw_program(seed, oriel.size(), one_device, functions, calls)
    Process(seed, *drawn).run()
    jax.clear_caches()


# ---- programs that differ -----------------------------------------------------------

ON_MESH = ("extra", "less", "shape", "dtype", "kind", "number")
NUMBERED = ("broadcast", "permute")


def draw_odd(seed, functions, calls):
    """(function, leaf, how): where one process's program is another. World calls of different
    programs may meet, so there the first call, which all make, is asked for otherwise."""
    rng = random.Random(f"odd {seed}")
    number = calls[-1].function
    leaves = [leaf for leaf in functions[number].term.leaves() if functions[number].calls(leaf)]
    world = functions[number].shape is None
    leaf = leaves[0] if world else rng.choice(leaves)
    hows = ["shape", "dtype", "kind"] if world else list(ON_MESH)
    if leaf is leaves[0] and not world:
        hows.remove("less")
    if leaf.kind not in NUMBERED and not world:
        hows.remove("number")
    if not leaf.rounds:  # it is differentiated, which integers and maxima are not
        hows = [how for how in hows if how not in ("dtype", "kind")]
    return number, leaf, rng.choice(hows)


def differ_seed(seed, functions, calls):
    drawn, order = draw_program(seed, oriel.size(), oriel.local_size() == 1, functions, calls)
    number, leaf, how = draw_odd(seed, drawn, order)
    victim = random.Random(f"victim {seed}").randrange(oriel.num_processes())
    first = next(i for i, call in enumerate(order) if call.function == number)
    odd = (leaf, how) if oriel.process_id() == victim else (None, None)
    process = Process(seed, drawn, order[: first + 1], odd)
    last = process.calls.pop()
    process.run()
    process.compile(last)
    begun, text = time.monotonic(), None
    try:
        jax.block_until_ready(process.start(last))
    except Exception as error:
        text = str(error)
    told = time.monotonic()
    try:
        oriel.check()
        status = None
    except oriel.OrielError as error:
        status = error.status.name
    report(seed=seed, how=how, victim=victim, begun=begun, told=told, text=text, status=status)
    jax.clear_caches()
    oriel.finalize()
    oriel.init()


def use_cache(folder, first):
    """Of this process's own, or none."""
    if random.Random(f"cache {first} {oriel.rank()}").random() < 0.7:
        jax.config.update("jax_compilation_cache_dir", f"{folder}/{oriel.rank()}")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def main():
    words = sys.argv[1:5]
    first, count, functions, calls = map(int, words + ["1", "10", "40"][len(words) - 1 :])
    run = differ_seed if sys.argv[5:] == ["differ"] else run_seed
    oriel.init()
    if "CACHE" in os.environ:
        use_cache(os.environ["CACHE"], first)
    for seed in range(first, first + count):
        try:
            run(seed, functions, calls)
        except BaseException as error:
            error.add_note(f"seed {seed} on rank {oriel.rank()} of {oriel.size()}")
            raise
    report(ok=True, seeds=count)


main()
