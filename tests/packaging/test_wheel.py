"""The wheel: what is in it, and that it runs where there is no source tree, or another one."""

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import barco

ROOT = Path(__file__).resolve().parents[2]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        capture_output=True,
        text=True,
        timeout=250,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree as it is."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    build = directory / "build"
    run(
        *pip, "wheel", "--no-deps", "-q", "-w", directory, "-C", f"build-dir={build}", ".", cwd=ROOT
    )
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, and the dependencies of this one."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=ROOT)
    python = venv / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", "-q", wheel, cwd=ROOT)
    # A path line does not run the hooks of that directory: not this tree's editable install.
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_nothing_top_level_but_barco(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    allowed = {"barco", f"barco-{barco.__version__}.dist-info", "pyspark_barco"}
    assert tops <= allowed, f"also installs {sorted(tops - allowed)}"


def test_everything_is_there(wheel: Path) -> None:
    inside = set(names(wheel))
    assert {"barco/py.typed", "barco/workers/__init__.py", "barco/supervisor/broker.py"} <= inside
    assert sum(name.startswith("barco/_native.") and name.endswith(".so") for name in inside) == 1
    assert any(name.endswith("LICENSE") for name in inside)
    for name in inside:
        assert not name.endswith((".c", ".o", ".pyc")) and "/tests/" not in name, name


def test_every_module_of_the_tree_is_in_it(wheel: Path) -> None:
    inside = set(names(wheel))
    for package in ("barco", "workers"):
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix().removeprefix("barco/")
            assert f"barco/{name}" in inside


def test_it_needs_no_library_of_the_system(wheel: Path, tmp_path: Path) -> None:
    """A node of Spark has neither liburing nor liblz4: the source would be missing there.

    OpenSSL 3 comes from the system, so that its fixes do (docs/tls.md): whichever has the C library
    that the wheel is built for has it, for Python's own `ssl`.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".so")]
        archive.extract(name, tmp_path)
    told = run("readelf", "-d", tmp_path / name, cwd=tmp_path)
    needed = {line.split("[")[1].rstrip("]") for line in told.splitlines() if "(NEEDED)" in line}
    usual = {"libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0"}
    assert needed <= usual | {"libssl.so.3", "libcrypto.so.3"}
    symbols = run("nm", "-D", "--defined-only", tmp_path / name, cwd=tmp_path).split()[2::3]
    assert symbols == ["PyInit__native"]


@pytest.mark.parametrize("where", ["elsewhere", "repository"])
def test_it_runs_anywhere(installed: Path, tmp_path: Path, where: str) -> None:
    """-P, as the supervisor starts workers: a source tree as current directory is no trap."""
    cwd = ROOT if where == "repository" else tmp_path
    script = (
        "import barco, barco._native, barco.workers, json\n"
        "print(json.dumps([m.__file__ for m in (barco, barco._native, barco.workers)]))"
    )
    places = json.loads(run(installed, "-P", "-c", script, cwd=cwd))
    assert all(str(installed.parent.parent) in place for place in places), places


def test_the_command(installed: Path, tmp_path: Path) -> None:
    command = installed.with_name("barco")
    assert run(command, "--version", cwd=tmp_path) == f"barco {barco.__version__}\n"
    assert "serve" in run(command, "--help", cwd=tmp_path)
    run(command, "format", "--data-dir", "data", "--workers", "2", cwd=tmp_path)
    assert (tmp_path / "data" / "broker.json").exists()
