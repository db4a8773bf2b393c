"""Data on several devices and in several processes: see devices.py, which runs in processes of its own."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("devices.py")
LIMIT = 600  # seconds


def start(*args):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(processes):
    """Every process ends well within the limit; none is left behind."""
    try:
        outputs = [process.communicate(timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0 and "the same" in output, output[-4000:]


@pytest.mark.slow
def test_four_devices_in_one_process():
    finish([start("one")])


@pytest.mark.slow
def test_two_processes():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    finish([start("two", port, "0"), start("two", port, "1")])
