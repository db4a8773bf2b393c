"""A model's file that processes write until they are killed: run as `killed_saves.py FOLDER KILLS SEED`.

Each child saves models 1, 2, ... to one path and says so after each; it dies by SIGKILL at a chosen call of os.fsync or
os.replace, or wherever it is when its time is over. What is read back must be the last model of which it said so, or
the one after it. Children are forked before jax has started. Prints how many saves were acknowledged.
"""

import os
import signal
import sys
import threading
import time

import numpy as np
from killed_pushes import first_model, kill_at

import jaxbounds as jb


def save_on(path: str, number: int, pipe: int, tell) -> None:
    """Save on until death."""
    model = first_model()
    while True:
        number += 1
        made = jb.Model(**{**vars(model), "n_steps": np.int32(number)})
        made.save(path)
        tell(pipe, b"%d\n" % number)


def child(path: str, acknowledged: int, pipe: int, rng) -> None:
    number, tell = 0, os.write  # the real one: what is said is said whole
    if os.path.exists(path):
        number = int(jb.load(path).n_steps)
    assert acknowledged <= number <= acknowledged + 1, (acknowledged, number)
    tell(pipe, b"%d\n" % number)  # what was read is on the disk
    if rng.random() < 0.5:
        kill_at(int(rng.integers(1, 25)), rng)
    else:
        wait = float(rng.uniform(0, 0.05))
        threading.Thread(target=lambda: (time.sleep(wait), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()
    save_on(path, number, pipe, tell)


def main() -> None:
    folder, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    path, acknowledged, rng = os.path.join(folder, "model.npz"), 0, np.random.default_rng(seed)
    for _ in range(kills):
        reading, writing = os.pipe()
        number = os.fork()
        if number == 0:
            try:
                child(path, acknowledged, writing, np.random.default_rng(int(rng.integers(1 << 30))))
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", flush=True)
                os._exit(1)
        rng.integers(1 << 30)
        os.close(writing)
        with os.fdopen(reading) as told:
            numbers = told.read().split()
        acknowledged = int(numbers[-1]) if numbers else acknowledged
        status = os.waitpid(number, 0)[1]
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"saving failed after {acknowledged} saves: status {status}")
    print(f"{acknowledged} saves acknowledged, {kills} kills survived")


if __name__ == "__main__":
    main()
