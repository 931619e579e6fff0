"""The images of Shardlog, and those of what stands beside it, as archives that containerd takes.

`Dockerfile.node`, `Dockerfile.operator` and `spark-jobs/Dockerfile` are built by whatever builder
is there, upon a base that is pulled, or where there is no registry made by debootstrap.  Packages
are fetched outside, by this machine's pip as it is configured, and installed inside from files: a
build needs no network.

An archive is kept below `~/.cache/shardlog/images` under a digest of all it is made from, so that
it is built again only when something changed; so are the packages.

    python -m e2e.images                build all, and print where the archives are
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from e2e.binaries import PROGRAMS, CannotBuild, binary, cache

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "constraints.txt", "README.md", "shardlog")
OWN_SOURCES = {
    "node": ("node", "operator"),
    "operator": ("node", "operator"),
    "spark": ("spark-jobs",),
}
EXTRAS = {"node": "node,compression,snapshot", "operator": "operator", "spark": "spark"}
NO_WHEEL = ("pyspark",)
"""What PyPI has only as sources; what is built from them runs on any Python."""
BASE_VARIABLE = "E2E_BASE_IMAGE"
DEBIAN = "bookworm"


@dataclass(frozen=True, slots=True)
class Base:
    """What an image begins with: `name` if it can be had, else one `made` with these packages."""

    name: str
    made: str
    packages: str


PYTHON = Base(
    "docker.io/library/python:3.13-slim",
    f"localhost/shardlog-base:{DEBIAN}",
    "python3,python3-venv",
)
JAVA = Base(
    f"docker.io/library/python:3.13-slim-{DEBIAN}",
    f"localhost/shardlog-base-java:{DEBIAN}",
    "python3,python3-venv,openjdk-17-jre-headless",
)
BASES = {"node": PYTHON, "operator": PYTHON, "spark": JAVA}


class Builder(Protocol):
    """What both builders can do; each raises `CannotBuild`."""

    def has(self, image: str) -> bool: ...
    def pull(self, image: str) -> bool: ...
    def build(self, context: Path, dockerfile: Path, image: str, **arguments: str) -> None: ...
    def said(self, image: str, *command: str) -> str: ...
    def save(self, image: str, archive: Path) -> None: ...
    def load(self, archive: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Docker:
    def has(self, image: str) -> bool:
        return _ran("docker", "image", "inspect", image).returncode == 0

    def pull(self, image: str) -> bool:
        return _ran("docker", "pull", "--quiet", image).returncode == 0

    def build(self, context: Path, dockerfile: Path, image: str, **arguments: str) -> None:
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        _run("docker", "build", "--quiet", "-f", dockerfile, "-t", image, *given, context)

    def said(self, image: str, *command: str) -> str:
        return _run("docker", "run", "--rm", "--entrypoint", command[0], image, *command[1:])

    def save(self, image: str, archive: Path) -> None:
        _run("docker", "save", "-o", archive, image)

    def load(self, archive: Path) -> None:
        _run("docker", "load", "--quiet", "-i", archive)


@dataclass(frozen=True, slots=True)
class Buildah:
    """Steps are run in a chroot, which needs no more than being root."""

    def has(self, image: str) -> bool:
        return _ran("buildah", "inspect", "--type=image", image).returncode == 0

    def pull(self, image: str) -> bool:
        return _ran("buildah", "pull", "--quiet", image).returncode == 0

    def build(self, context: Path, dockerfile: Path, image: str, **arguments: str) -> None:
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        flags = ["--isolation=chroot", "--format=docker", "--layers=false", "--quiet"]
        _run("buildah", "build", *flags, "-f", dockerfile, "-t", image, *given, context)

    def said(self, image: str, *command: str) -> str:
        container = _run("buildah", "from", "--pull-never", image).strip()
        try:
            return _run("buildah", "run", "--isolation=chroot", container, "--", *command)
        finally:
            _run("buildah", "rm", container)

    def save(self, image: str, archive: Path) -> None:
        archive.unlink(missing_ok=True)
        _run("buildah", "push", "--quiet", image, f"docker-archive:{archive}:{image}")

    def load(self, archive: Path) -> None:
        _run("buildah", "pull", "--quiet", f"docker-archive:{archive}")


def builder() -> Builder:
    if shutil.which("docker") and _ran("docker", "version").returncode == 0:
        return Docker()
    if shutil.which("buildah"):
        return Buildah()
    raise CannotBuild("images: neither docker nor buildah works here: apt-get install buildah")


def dockerfile_of(kind: str) -> Path:
    return ROOT / "spark-jobs" / "Dockerfile" if kind == "spark" else ROOT / f"Dockerfile.{kind}"


def archive_of(kind: str, tag: str) -> Path:
    """The archive of `shardlog-KIND:TAG`, as the sources are now; raises `CannotBuild`."""
    dockerfile = dockerfile_of(kind)

    def build(place: Path) -> None:
        print(f"building the image shardlog-{kind}:{tag}", file=sys.stderr, flush=True)
        builds = builder()
        base = _base(builds, BASES[kind])
        python = builds.said(base, "python3", "-c", "import sys; print(*sys.version_info[:2])")
        with tempfile.TemporaryDirectory(prefix="shardlog-image-") as temporary:
            context = Path(temporary)
            _fill(context, kind, ".".join(python.split()))
            image = f"docker.io/library/shardlog-{kind}:{tag}"
            find = "--no-index --find-links=/src/wheels"
            builds.build(context, dockerfile, image, BASE=base, PIP_ARGS=find, VERSION=tag)
            builds.save(image, place)

    return built_once(f"shardlog-{kind}", [tag, *_digests(kind)], build)


def archive_of_program(name: str, image: str) -> Path:
    """An image that holds one program of `binaries` and nothing else, under a name of its own."""
    program = PROGRAMS[name]

    def fill(context: Path) -> str:
        shutil.copy2(binary(name), context / name)
        return (
            f"FROM scratch\nCOPY {name} /usr/local/bin/{name}\n"
            f'ENV PATH=/usr/local/bin\nENTRYPOINT ["/usr/local/bin/{name}"]\n'
        )

    return archive_of_image(name, image, [program.package, program.version], fill)


def archive_of_image(
    name: str, image: str, made_from: list[str], fill: Callable[[Path], str]
) -> Path:
    """An image of a context that is filled only when it is built; `fill` returns a Dockerfile."""

    def build(place: Path) -> None:
        builds = builder()
        with tempfile.TemporaryDirectory(prefix="shardlog-image-") as temporary:
            context = Path(temporary)
            dockerfile = context / "Dockerfile"
            dockerfile.write_text(fill(context))
            builds.build(context, dockerfile, image)
            builds.save(image, place)

    return built_once(name, [image, *made_from], build)


def built_once(name: str, made_from: list[str], build: Callable[[Path], None]) -> Path:
    """A file under a digest of what it is made from; whole, or not there."""
    place = _place(name, made_from)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        build(unfinished)
        unfinished.replace(place)
    return place


def _base(builds: Builder, base: Base) -> str:
    """One that was asked for, one that is or can be had, or one that is made."""
    wanted = os.environ.get(BASE_VARIABLE)
    if wanted:
        return wanted
    if builds.has(base.name) or builds.pull(base.name):
        return base.name
    if not builds.has(base.made):
        _make_base(builds, base)
    return base.made


def _make_base(builds: Builder, base: Base) -> None:
    require_debootstrap(f"{base.name} cannot be pulled, and to make a base")
    print(f"making a base image of Debian {DEBIAN}: {base.packages} (once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="shardlog-base-") as temporary:
        context = Path(temporary)
        make_root(context / "root", base.packages)
        dockerfile = context / "Dockerfile"
        dockerfile.write_text('FROM scratch\nCOPY root /\nCMD ["python3"]\n')
        builds.build(context, dockerfile, base.made)


def require_debootstrap(why: str) -> None:
    """Raises `CannotBuild`, for want of it or of the right to use it."""
    if shutil.which("debootstrap") is None:
        raise CannotBuild(f"{why} debootstrap is needed: apt-get install debootstrap")
    if os.geteuid() != 0:
        raise CannotBuild(f"{why} one must be root; or set {BASE_VARIABLE}")


def make_root(root: Path, packages: str) -> None:
    """A small Debian with these packages; each is downloaded once."""
    fetched = cache().parent / "debs"
    fetched.mkdir(parents=True, exist_ok=True)
    flags = ["--variant=minbase", f"--cache-dir={fetched}", f"--include={packages}"]
    _run("debootstrap", *flags, DEBIAN, root)
    for unused in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
        shutil.rmtree(root / unused, ignore_errors=True)


def _fill(context: Path, kind: str, python: str) -> None:
    for name in (*SOURCES, *OWN_SOURCES[kind]):
        source = ROOT / name
        if source.is_dir():
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, context / name, ignore=skipped)
        elif source.exists():
            shutil.copy2(source, context / name)
    shutil.copytree(_wheels(kind, python), context / "wheels")


def _wheels(kind: str, python: str) -> Path:
    """All that an image installs, fetched once for these requirements."""
    wanted = ["hatchling", *_requirements(kind)]
    constraints = ROOT / "constraints.txt"
    made_from = [python, constraints.read_text(), *wanted]
    place = _place(f"wheels-{kind}", made_from).with_suffix("")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        # Of this run alone: another one may be at it, too.
        unfinished = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
        pip = (sys.executable, "-m", "pip")
        built = [each for each in wanted if each.startswith(NO_WHEEL)]
        if built:
            flags = ("--quiet", "--no-deps", "-c", str(constraints), "-w", str(unfinished))
            _run(*pip, "wheel", *flags, *built)
        _run(
            *(*pip, "download", "--quiet", "--only-binary=:all:", f"--find-links={unfinished}"),
            *(f"--python-version={python}", "-c", str(constraints), "-d", str(unfinished)),
            *wanted,
        )
        try:
            unfinished.rename(place)
        except OSError:
            if not place.exists():
                raise
            shutil.rmtree(unfinished)  # the other one was faster
    return place


def _requirements(kind: str) -> Iterator[str]:
    """Of the package with the extras of an image, as pyproject.toml says."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from project["dependencies"]
    for extra in EXTRAS[kind].split(","):
        for each in project["optional-dependencies"][extra]:
            if not each.startswith("shardlog["):
                yield each
            else:
                for inner in each[len("shardlog[") : -1].split(","):
                    yield from project["optional-dependencies"][inner]


def _digests(kind: str) -> Iterator[str]:
    sources = (ROOT / name for name in (*SOURCES, *OWN_SOURCES[kind]))
    for path in (dockerfile_of(kind), *_files(sources)):
        yield f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _files(tops: Iterable[Path]) -> Iterator[Path]:
    for top in tops:
        if top.is_file():
            yield top
        yield from sorted(
            path for path in top.rglob("*") if path.is_file() and path.suffix != ".pyc"
        )


def _place(name: str, made_from: list[str]) -> Path:
    digest = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
    return cache().parent / "images" / f"{name}-{digest}.tar"


def _ran(*command: str | Path, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def _run(*command: str | Path, directory: Path | None = None) -> str:
    done = _ran(*command, directory=directory)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise CannotBuild(
            f"{Path(command[0]).name} {command[1]}: {lines[-1] if lines else 'failed'}"
        )
    return done.stdout


def main() -> int:
    from shardlog import __version__

    try:
        for kind in EXTRAS:
            print(archive_of(kind, __version__))
    except CannotBuild as failure:
        print(f"e2e: {failure}", file=sys.stderr)
        return 8
    return 0


if __name__ == "__main__":
    sys.exit(main())
