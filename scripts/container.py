#!/usr/bin/env python3
"""What the Dockerfile promises, without a container engine: the same steps in a root of their own, made by unshare.

A wheel is built and installed into a fresh environment outside of the checkout.  Then a root file system is put
together of read-only mounts, in which only /data and /scratch can be written, and the commands run in it as the
Dockerfile's user, with its variables and nothing else: ingest, the first fit, its proof, and the demonstration.  None
of them may compile anything.  Printed as JSON; exit 1 where a promise is missed.  Takes Linux, root, and pip.

    scripts/container.py --heart heart_scale      svmlight text of the first fit; else a small one is made
    scripts/container.py --smoke                  without pip: whether the root is what it should be
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc")
"""What of this machine the programs need: bound read-only."""
_PROBE = """
import json, os
refused = []
for folder in ("/", "/opt", "/usr", "/data", "/scratch"):
    try:
        open(os.path.join(folder, "probe"), "w").close()
    except OSError:
        refused.append(folder)
print(json.dumps({"uid": os.getuid(), "read_only": refused, "home": os.environ["HOME"]}))
"""


def said_in_dockerfile() -> tuple[int, dict[str, str]]:
    """The user and the variables of the image."""
    last = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    user = re.search(r"^USER (\d+)", last, re.MULTILINE)
    assert user is not None, "the Dockerfile names no user by number"
    return int(user[1]), dict(re.findall(r"^ENV (\w+)=(\S+)$", last, re.MULTILINE))


def can_unshare() -> bool:
    """Whether this process may make a root of its own."""
    if shutil.which("unshare") is None or shutil.which("setpriv") is None or os.getuid() != 0:
        return False
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


class Image:
    """A root of read-only mounts.

    work : a folder to make it in;  binds : place in the image -> folder of this machine
    """

    def __init__(self, work: Path, binds: dict[str, Path]) -> None:
        self.user, self.variables = said_in_dockerfile()
        self.root, self.data, self.scratch = work / "root", work / "data", work / "scratch"
        self.binds = {place: Path(place) for place in SYSTEM if Path(place).exists()} | binds
        for folder in (self.root, self.data, self.scratch):
            folder.mkdir()
        for folder in (self.data, self.scratch):
            os.chown(folder, self.user, self.user)

    def run(self, *command: str, **more: str) -> dict[str, Any]:
        """Standard output of a command in the image, which must succeed, and how many functions it compiled."""
        had = self.compiled()
        variables = shlex.join(f"{name}={value}" for name, value in {**self.variables, **more}.items())
        inner = (
            f"chroot {shlex.quote(str(self.root))} setpriv --reuid {self.user} --regid {self.user} --clear-groups "
            f"env -i -C /data {variables} {shlex.join(command)}"
        )
        script = "\n".join(["set -e", *self._mounts(), inner])
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return {"said": done.stdout, "compiled": self.compiled() - had}

    def compiled(self) -> int:
        return sum(1 for _ in self.scratch.rglob("*.compiled"))

    def _mounts(self) -> list[str]:
        root = shlex.quote(str(self.root))
        lines = [f"mount -t tmpfs none {root}"]
        for place, folder in {**self.binds, "/data": self.data, "/scratch": self.scratch}.items():
            at = f"{root}{shlex.quote(place)}"
            lines += [f"mkdir -p {at}", f"mount --bind {shlex.quote(str(folder))} {at}"]
            if place not in ("/data", "/scratch"):
                lines.append(f"mount -o remount,ro,bind {at}")
        for place in ("/proc", "/dev", "/sys"):
            lines += [f"mkdir -p {root}{place}", f"mount --rbind {place} {root}{place}"]
        return [*lines, f"mount -o remount,ro {root}"]


def installed(work: Path, uses: str) -> Path:
    """A fresh environment with a wheel in it, which `pip` builds in a folder of its own."""
    environment, wheels = work / "opt" / "bigsvm", work / "wheels"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BIGSVM_", "PYTHON", "NUMBA_"))}
    clean |= {"BIGSVM_BUILD_CACHE": uses, "XDG_CACHE_HOME": str(work / "cache")}
    python = str(environment / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [python, "-m", "pip", "-q", "wheel", "--no-deps", "-w", str(wheels), str(ROOT)],
    ):
        subprocess.run(command, check=True, env=clean, cwd=work)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([python, "-m", "pip", "-q", "install", str(wheel)], check=True, env=clean, cwd=work)
    return environment


def promised(work: Path, heart: Path | None, uses: str) -> dict[str, Any]:
    """The commands of a first day, in the image."""
    environment = installed(work, uses)
    image = Image(work, {"/opt/bigsvm": environment, sys.base_prefix: Path(sys.base_prefix)})
    bigsvm = ("/opt/bigsvm/bin/python", "-m", "bigsvm")
    if heart is None:
        sys.path.insert(0, str(ROOT / "scripts" / "benchmarks"))
        from cold_start import text_of_heart

        text_of_heart(image.data / "heart.svm")
    else:
        shutil.copyfile(heart, image.data / "heart.svm")
    found = {"probe": json.loads(image.run("/opt/bigsvm/bin/python", "-c", _PROBE)["said"])}
    for name, arguments in {
        "ingest": ["ingest", "heart.svm", "heart.zarr"],
        "fit": ["fit", "heart.zarr", "-o", "heart.model", "--json"],
        "certify": ["certify", "heart.model", "heart.zarr", "--json"],
        "demo": ["demo", "--json"],
    }.items():
        done = image.run(*bigsvm, *arguments)
        found[name] = {"compiled": done["compiled"]}
        if "--json" in arguments:
            document = json.loads(done["said"])
            found[name] |= {"status": document["status"], "elapsed_s": round(document["elapsed_s"], 2)}
    return found


def smoke(work: Path) -> dict[str, Any]:
    """The root alone, with this environment in it."""
    binds = {prefix: Path(prefix) for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)) if prefix not in SYSTEM}
    image = Image(work, {**binds, "/src/bigsvm": ROOT / "bigsvm"})
    found = {"probe": json.loads(image.run(sys.executable, "-c", _PROBE)["said"])}
    found["version"] = image.run(sys.executable, "-m", "bigsvm", "--version", PYTHONPATH="/src")["said"].strip()
    return found


def missed(found: dict[str, Any]) -> list[str]:
    """What was promised and is not so."""
    probe, wrong = found["probe"], []
    if probe["uid"] == 0:
        wrong.append("the process is root")
    if probe["read_only"] != ["/", "/opt", "/usr"]:
        wrong.append(f"only {probe['read_only']} cannot be written")
    wrong += [f"{name} compiled {row['compiled']} functions" for name, row in found.items()
              if isinstance(row, dict) and row.get("compiled")]  # fmt: skip
    return wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heart", type=Path, help="svmlight text of the first fit, such as heart_scale")
    parser.add_argument("--uses", default="all", help="what is compiled: the image's BIGSVM_BUILD_CACHE [%(default)s]")
    parser.add_argument("--smoke", action="store_true", help="without pip")
    options = parser.parse_args(argv)
    if not can_unshare():
        raise SystemExit("a root of its own needs Linux, root, unshare, setpriv, and the right to mount")
    with tempfile.TemporaryDirectory(prefix="container-") as folder:
        Path(folder).chmod(0o755)
        heart = options.heart.resolve() if options.heart is not None else None
        found = smoke(Path(folder)) if options.smoke else promised(Path(folder), heart, options.uses)
    wrong = missed(found)
    print(json.dumps({**found, "missed": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
