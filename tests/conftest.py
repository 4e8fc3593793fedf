"""Options that every test in Python shares."""
import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--build-dir", default=str(pathlib.Path(__file__).parent.parent / "build"),
                     help="folder that holds lily and the test programs")
    parser.addoption("--full-checkpoint", default="", help="folder that `mkckpt full` made, for the nightly tests")


@pytest.fixture(scope="session")
def build_dir(request):
    return pathlib.Path(request.config.getoption("--build-dir"))


@pytest.fixture(scope="session")
def source_dir():
    return pathlib.Path(__file__).parent.parent
