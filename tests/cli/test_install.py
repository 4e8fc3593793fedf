"""What is installed beside the program: manual page, completions, service files; each judged by its own reader."""
import os
import plistlib
import re
import shutil
import subprocess

import pytest


@pytest.fixture(scope="module")
def prefix(build_dir, tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", build_dir, "--prefix", path], check=True, capture_output=True)
    return path


@pytest.fixture
def lily(build_dir):
    def run(*args):
        return subprocess.run([build_dir / "lily", *args], capture_output=True, text=True, timeout=60)
    return run


def quiet(*command, **kw):
    r = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **kw)
    assert r.returncode == 0 and not r.stderr.strip(), r.stderr
    return r.stdout


def need(tool):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")


def long_options(lily, command):
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", lily(command, "--help").stdout, re.M))


def test_manual_names_every_option(lily):
    page = lily("man").stdout.replace("\\-", "-")
    for command in ("chat", "serve", "score", "bench", "inspect", "replay"):
        missing = [o for o in long_options(lily, command) if o not in page]
        assert not missing


def test_manual_is_clean(prefix):
    need("groff")
    page = prefix / "share/man/man1/lily.1"
    text = quiet("groff", "-man", "-Tutf8", "-ww", page)
    assert "lily serve" in text
    if shutil.which("man"):
        quiet("man", "--warnings", "-l", page, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"})


def test_no_such_shell(lily):
    for args in (["completions"], ["completions", "tcsh"]):
        r = lily(*args)
        assert r.returncode == 2 and r.stdout == "" and "bash, zsh and fish" in r.stderr


def test_bash_completes(lily, prefix, tmp_path):
    need("bash")
    script = prefix / "share/bash-completion/completions/lily"
    quiet("bash", "-n", script)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    ask = (f'source {script}; compopt() {{ :; }}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lily; '
           'printf "%s\\n" "${COMPREPLY[@]}"')

    def complete(*words):
        return quiet("bash", "-c", ask, "-", "lily", *words, cwd=tmp_path).split()

    assert {"chat", "serve", "help"} <= set(complete(""))
    assert complete("se") == ["serve"]
    assert set(complete("serve", "--")) == long_options(lily, "serve")
    assert complete("serve", "--log-format", "j") == ["json"]
    assert complete("serve", "--model", "") == ["folder"]
    assert sorted(complete("serve", "--api-key-file", "")) == ["file", "folder"]
    assert complete("serve", "--port", "") == []
    assert complete("inspect", "pl") == ["plan"]


def test_zsh_reads_its_script(prefix):
    need("zsh")
    quiet("zsh", "-n", prefix / "share/zsh/site-functions/_lily")


def test_fish_completes(prefix):
    need("fish")
    script = prefix / "share/fish/vendor_completions.d/lily.fish"
    quiet("fish", "-n", script)
    got = quiet("fish", "--no-config", "-c", f"source {script}; complete -C 'lily serve --log-f'")
    assert got.startswith("--log-format")


def test_systemd_takes_the_units(prefix):
    service, socket = (prefix / "lib/systemd/system" / f"lily.{kind}" for kind in ("service", "socket"))
    if not service.exists():
        pytest.skip("no service files of systemd on this system")
    assert f"ExecStart={prefix}/bin/lily serve " in service.read_text()
    need("systemd-analyze")
    quiet("systemd-analyze", "verify", "--man=no", service, socket)


def test_launchd_takes_the_property_list(source_dir):
    text = (source_dir / "packaging/launchd/lily.plist.in").read_text()
    job = plistlib.loads(text.replace("@bindir@", "/usr/local/bin").encode())
    assert job["ProgramArguments"][:2] == ["/usr/local/bin/lily", "serve"]
