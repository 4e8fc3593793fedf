"""The checkpoint of the full size takes 20 GB of disk: made in the build folder and removed at the end, unless
--full-checkpoint names one."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "conformance"))

from support import Process, free_port  # noqa: E402

GB = 10**9


@pytest.fixture(scope="session")
def full(request, build_dir):
    given = request.config.getoption("--full-checkpoint")
    if given:
        yield pathlib.Path(given)
        return
    folder = build_dir / "tests/ck/full-size"
    free = shutil.disk_usage(build_dir).free
    if free < 25 * GB:
        pytest.skip(f"the full-size checkpoint needs 25 GB of disk, {free / GB:.0f} are free")
    subprocess.run([build_dir / "mkckpt", "full", folder], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def enough_memory(full):
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if have < 20 * GB:
        pytest.skip(f"the full-size model needs 20 GB of memory, the machine has {have / GB:.0f}")


@pytest.fixture
def serve(full, build_dir):
    """Starts the server with the full-size model and further options."""
    started = []

    def start(*options):
        command = [build_dir / "lily", "serve", "--model", full, "--port", "{port}", *options]
        started.append(Process([str(part) for part in command], free_port()))
        return started[-1].wait_ready(600)

    yield start
    for p in started:
        p.stop()
