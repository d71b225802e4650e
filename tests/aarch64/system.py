"""An aarch64 system in a folder, on Debian of any other kind of machine: ``system.py FOLDER``.

`make test-all` makes it. It is Debian's Python and linker for that machine, the wheels that an
artifact needs there, and QEMU, which runs them. Packages are unpacked and not installed, and apt
keeps its lists in the folder too: no rights are needed, and nothing outside the folder changes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

# What Debian's packages for the emulated machine are, and the one for this machine.
PACKAGES = ("python3", "libstdc++6", "binutils")
QEMU = "qemu-user-static"
# What `run.py` imports: TVM in the releases that compile here, the others in any.
PINNED = ("apache-tvm", "apache-tvm-ffi")
WHEELS = ("jinja2", "markupsafe", "ml_dtypes", "numpy", "tokenizers", "typing_extensions")
PLATFORMS = ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64")

# Programs of the folder `bin`: the name, and what QEMU runs.
PROGRAMS = {
    "aarch64-linux-gnu-python3": "usr/bin/python3",
    "aarch64-linux-gnu-ld": "usr/bin/aarch64-linux-gnu-ld",
}
WRAPPER = """#!/bin/sh
export PYTHONPATH='{folder}/wheels'
exec '{folder}/qemu' -cpu max -L '{folder}/root' '{folder}/root/{program}' "$@"
"""


def make(folder: Path) -> None:
    """Make the folder anew.

    Raises:
        subprocess.CalledProcessError: If a package cannot be had.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with TemporaryDirectory(dir=folder) as scratch:
        _unpack_packages(folder, Path(scratch))
    _install_wheels(folder)
    programs = folder / "bin"
    programs.mkdir()
    for name, program in PROGRAMS.items():
        file = programs / name
        file.write_text(WRAPPER.format(folder=folder, program=program))
        file.chmod(0o755)


def _unpack_packages(folder: Path, scratch: Path) -> None:
    """Fill ``root`` with Debian's packages for aarch64, and take QEMU out of its own."""
    here = _output("dpkg", "--print-architecture")
    for missing in ("lists/partial", "archives/partial"):
        (scratch / missing).mkdir(parents=True)
    (scratch / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "Dir::State": scratch,
        "Dir::State::status": scratch / "status",
        "Dir::Cache": scratch,
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "root",
    }
    settings = [f"-o{name}={value}" for name, value in options.items()]
    settings += [f"-oAPT::Architectures::={name}" for name in dict.fromkeys(("arm64", here))]
    apt = ["apt-get", "--quiet", "--quiet", *settings]
    _run(*apt, "update")
    _run(*apt, "install", "--yes", "--no-install-recommends", "--download-only", *PACKAGES)
    for package in sorted((scratch / "archives").glob("*.deb")):
        _run("dpkg-deb", "--extract", package, folder / "root")
    _run(*apt, "download", f"{QEMU}:{here}", cwd=scratch)
    (package,) = scratch.glob("*.deb")
    _run("dpkg-deb", "--extract", package, scratch / "qemu")
    (scratch / "qemu/usr/bin/qemu-aarch64-static").replace(folder / "qemu")


def _install_wheels(folder: Path) -> None:
    """Fill ``wheels``, but for TVM's compiler: artifacts need its runtime alone."""
    python = (folder / "root/usr/bin/python3").readlink().name.removeprefix("python")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    only = ["--no-deps", "--only-binary=:all:", f"--python-version={python}"]
    platforms = [f"--platform={name}" for name in PLATFORMS]
    wanted = [*(f"{name}=={version(name)}" for name in PINNED), *WHEELS]
    _run(*pip, *only, *platforms, f"--target={folder / 'wheels'}", *wanted)
    (folder / "wheels/tvm/lib/libtvm_compiler.so").unlink()


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, stdin=subprocess.DEVNULL)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]).resolve())
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"there is no aarch64 system to test on: {error}")
