"""How long the soak lasts."""


def pytest_addoption(parser):
    parser.addoption("--seconds", type=float, default=20, help="how long clients go on")
