"""The Python environment of the bench, and the facts about machine and sources that the report names."""

import os
import platform
import subprocess
import sys
from pathlib import Path

BENCHES = Path(__file__).resolve().parent.parent
VENV = BENCHES / "peers" / ".venv"
#: Needed by the bench itself.
REQUIRED = ("numpy", "pillow", "pyarrow", "matplotlib")
#: Installed each by itself, so that one that cannot be had leaves the others.
PEERS = ("tensorflow-cpu", "torch torchvision", "daft", "polars", "duckdb", "opencv-python-headless")


def enter(python):
    """Continues in another interpreter: `python`, or that of the bench's venv, which is made if it is missing."""
    if os.environ.get("PEERS_ENTERED"):
        return
    if python is None:
        python = VENV / "bin" / "python"
        if not python.exists():
            make()
    os.environ["PEERS_ENTERED"] = "1"
    os.execv(python, [str(python), str(BENCHES / "peers"), *sys.argv[1:]])


def make():
    """Makes the venv with all packages that PyPI has for this machine."""
    print(f"making {VENV}: about 8 GB", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    install = [str(VENV / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *REQUIRED], check=True)
    for packages in PEERS:
        if subprocess.run([*install, *packages.split()], check=False).returncode:
            print(f"{packages}: left out, it cannot be installed", file=sys.stderr)


def commit():
    """Returns the commit of the sources, with a word if they have changes."""
    def git(*words):
        return subprocess.run(["git", "-C", str(BENCHES), *words], capture_output=True, text=True, check=False).stdout

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "..", ":!README.md", ":!../README.md",
                  ":!peers.svg")
    return git("rev-parse", "--short", "HEAD").strip() + (" with changes" if changed.strip() else "")


def machine(cores):
    """Returns the processor, its widest vector instructions, the cores in use, the system and the Python version."""
    facts = Path("/proc/cpuinfo").read_text()
    models = [line.split(":")[1].strip() for line in facts.splitlines() if line.startswith("model name")]
    vectors = [name for name, flag in (("AVX-512", "avx512bw"), ("AVX2", "avx2")) if flag in facts.split()]
    processor = f"{(models or ['unknown processor'])[0]}{f' ({vectors[0]})' if vectors else ''}"
    return f"{processor}, {len(cores)} cores, Linux {platform.release()}, Python {platform.python_version()}"
