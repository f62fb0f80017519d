"""Threads that look at the world while it comes and goes: they see it whole, or not at all."""

import os
import sys
import threading

import oriel

LOOKERS = 4
# Without the lock that readers take, 12 of 12 runs crashed, after 80 worlds in the mean and 454 at
# most.
WORLDS = 3000 if os.environ.get("SOAK") else 500

sys.setswitchinterval(1e-6)  # threads take turns anywhere
ended = threading.Event()
wrong = []


def look():
    while not ended.is_set():
        try:
            oriel.check()
        except Exception as error:
            if "there is no world" not in str(error):
                wrong.append(error)
                return


threads = [threading.Thread(target=look) for _ in range(LOOKERS)]
for thread in threads:
    thread.start()
for _ in range(WORLDS):
    oriel.init()
    oriel.finalize()
ended.set()
for thread in threads:
    thread.join()
assert not wrong, wrong
print("all saw it whole")
