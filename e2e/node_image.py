"""The image that kind's nodes run, where none can be pulled: Debian, kubeadm, and all of a cluster.

kind's own node images are built upon a base image of its project.  This one is built upon
debootstrap with the files of that base image, which are in kind's Go module; programs are those of
`binaries`, and the images that kubeadm wants are made of them.  Two things differ from kind's:

* containerd, runc and the plugins for pods' networks are Debian's;
* routes to the pods of other nodes are set by a service of the node (`node_image/pod-network`).

An archive for `docker import` is kept below `~/.cache/shardlog/images`, under a digest of all that
it is made from.

    python -m e2e.node_image            build it, and print where it is
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from e2e.binaries import KUBERNETES, MODULES, PROGRAMS, CannotBuild, binary
from e2e.docker_daemon import Docker
from e2e.images import (
    archive_of_image,
    archive_of_program,
    built_once,
    make_root,
    require_debootstrap,
)

NAME = "localhost/shardlog-kind-node"
OWN = Path(__file__).parent / "node_image"
PACKAGES = (
    "systemd,dbus,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,procps,jq,"
    "libseccomp2,ca-certificates,containerd,runc,containernetworking-plugins"
)
PAUSE = "registry.k8s.io/pause:3.10"
IMAGES = {
    "kube-apiserver": f"registry.k8s.io/kube-apiserver:{KUBERNETES}",
    "kube-controller-manager": f"registry.k8s.io/kube-controller-manager:{KUBERNETES}",
    "kube-scheduler": f"registry.k8s.io/kube-scheduler:{KUBERNETES}",
    "etcd": "registry.k8s.io/etcd:3.6.5-0",
    "coredns": "registry.k8s.io/coredns/coredns:v1.12.1",
    "pause": PAUSE,
}
"""By program, under the names that this kubeadm asks for, whatever the version is."""
IPTABLES = ("iptables", "ip6tables")
KUBE_PROXY = f"registry.k8s.io/kube-proxy:{KUBERNETES}"
KUBE_PROXY_TOOLS = (
    *("/bin/sh", "/bin/mkdir", "/bin/rm"),
    *("/usr/sbin/conntrack", "/usr/sbin/nft"),
    *(f"/usr/sbin/{ip}-nft{what}" for ip in IPTABLES for what in ("", "-save", "-restore")),
)
"""What kube-proxy calls; also a shell for the pods that make and remove volumes."""
ON_NODE = ("kubeadm", "kubelet", "kubectl")
ENTRYPOINT = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
CHANGES = ("ENV container=docker", ENTRYPOINT)
"""What `docker import` is told, as the Dockerfile of kind's base image says it."""
UNWANTED = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
)
ENABLED = ("kubelet", "containerd", "undo-mount-hacks", "pod-network")
IMPORTING = """
containerd --config /tmp/containerd.toml >/tmp/containerd.log 2>&1 &
ctr="ctr --address /tmp/containerd.sock --namespace k8s.io"
for _ in $(seq 300); do $ctr version >/dev/null 2>&1 && break; sleep 0.1; done
for each in /tmp/images/*.tar; do $ctr images import --no-unpack $each; done
while read -r image other; do $ctr images tag $image $other; done </tmp/images/tags
kill %1
wait
"""
CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/tmp/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "/tmp/containerd.sock"
"""
"""While images are imported; their layers are unpacked by the nodes that run them."""


def archive() -> Path:
    """For `docker import`; raises `CannotBuild`."""
    return built_once("kind-node", list(_made_from()), _build)


def imported(daemon: Docker) -> str:
    """The name of the image, which this daemon has then; raises `CannotBuild`, `CannotStart`."""
    made = archive()
    image = f"{NAME}:{made.stem.rpartition('-')[2]}"
    if not daemon.run("docker", "image", "ls", "--quiet", image):
        changes = (f"--change={each}" for each in CHANGES)
        daemon.run("docker", "import", *changes, made, image)
    return image


def _made_from() -> Iterator[str]:
    yield from (Path(__file__).read_text(), PACKAGES)
    yield from (f"{name} {program}" for name, program in PROGRAMS.items())
    yield from (f"{path.name} {path.read_text()}" for path in sorted(OWN.iterdir()))


def _build(place: Path) -> None:
    require_debootstrap("for a node image of kind")
    print("building a node image of kind (once)", file=sys.stderr, flush=True)
    kind = _kind_module()
    with tempfile.TemporaryDirectory(prefix="shardlog-node-image-") as temporary:
        root = Path(temporary) / "root"
        make_root(root, PACKAGES)
        _copy_base_files(kind / "images" / "base" / "files", root)
        _configure(root)
        for name in ON_NODE:
            shutil.copy2(binary(name), root / "usr" / "bin" / name)
        provisioner, helper = _write_manifests(kind, root / "kind" / "manifests")
        _import_images(root, provisioner, helper)
        _run("tar", "--numeric-owner", "-C", root, "-cf", place, ".")


def _kind_module() -> Path:
    """The sources of the kind that `binaries` builds."""
    binary("kind")
    return Path(
        _run("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind", cwd=MODULES / "kind")
    )


def _copy_base_files(files: Path, root: Path) -> None:
    """Modes as the Dockerfile sets them: a module cache has none."""
    for source in (each for each in files.rglob("*") if each.is_file()):
        target = root / source.relative_to(files)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if target.parent.name == "bin" else 0o644)


def _configure(root: Path) -> None:
    for pattern in UNWANTED:
        for each in root.glob(pattern):
            each.unlink()
    with (root / "etc/systemd/journald.conf").open("a") as journal:
        journal.write("ReadKMsg=no\n")
    (root / "sbin/init").symlink_to("/lib/systemd/systemd")
    for name in ("containerd", "ctr", "containerd-shim-runc-v2"):
        (root / "usr/local/bin" / name).symlink_to(f"/usr/bin/{name}")
    (root / "opt/cni").mkdir(parents=True)
    (root / "opt/cni/bin").symlink_to("/usr/lib/cni")
    (root / "etc/kubernetes/manifests").mkdir(parents=True)
    (root / "kind/version").write_text(KUBERNETES)

    containerd = root / "etc/containerd/config.toml"
    # A node that may not lower oom_score_adj could start no pod otherwise.
    text = containerd.read_text().replace("oom_score_adj = false", "oom_score_adj = true")
    containerd.write_text(re.sub(r'sandbox_image = ".*"', f'sandbox_image = "{PAUSE}"', text))
    spec: Any = json.loads(_run("chroot", root, "ctr", "oci", "spec"))
    hooks = spec.setdefault("hooks", {}).setdefault("createContainer", [])
    hooks.append({"path": "/kind/bin/mount-product-files.sh"})
    spec["process"].pop("rlimits", None)
    (root / "etc/containerd/cri-base.json").write_text(json.dumps(spec))

    service = root / "etc/systemd/system/pod-network.service"
    shutil.copyfile(OWN / "pod-network.service", service)
    script = root / "usr/local/bin/pod-network"
    shutil.copyfile(OWN / "pod-network", script)
    script.chmod(0o755)
    _run("chroot", root, "systemctl", "enable", *(f"{each}.service" for each in ENABLED))
    _run("chroot", root, "systemctl", "mask", "systemd-binfmt.service")


def _write_manifests(kind: Path, directory: Path) -> tuple[str, str]:
    """The network is ours, storage is kind's; the two images that the latter names."""
    directory.mkdir(parents=True)
    shutil.copyfile(OWN / "default-cni.yaml", directory / "default-cni.yaml")
    source = (kind / "pkg/build/nodeimage/const_storage.go").read_text()
    images = dict(re.findall(r'const (storage\w+Image) = "(.+)"', source))
    manifest = re.search(r"const defaultStorageManifest = `(.*)`\n", source, re.DOTALL)
    if manifest is None or len(images) != 2:
        raise CannotBuild("node image: this kind does not say what its storage is")
    text = re.sub(r"` \+ (\w+) \+ `", lambda name: images[name[1]], manifest[1])
    (directory / "default-storage.yaml").write_text(text)
    return images["storageProvisionerImage"], images["storageHelperImage"]


def _import_images(root: Path, provisioner: str, helper: str) -> None:
    """By the node's own containerd, into the place where it will look for them."""
    archives = [archive_of_program(name, image) for name, image in IMAGES.items()]
    archives.append(archive_of_program("local-path-provisioner", provisioner))
    archives.append(_kube_proxy(root))
    images = root / "tmp" / "images"
    images.mkdir()
    for each in archives:
        shutil.copyfile(each, images / each.name)
    (images / "tags").write_text(f"{KUBE_PROXY} {helper}\n")
    (root / "tmp" / "containerd.toml").write_text(CONTAINERD)
    script = f"mount -t proc proc {root}/proc; chroot {root} bash -euc '{IMPORTING}'"
    _run("unshare", "--mount", "sh", "-euc", script)
    for each in (root / "tmp").iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def _kube_proxy(root: Path) -> Path:
    """With the tools that it calls, and what these are linked with."""

    def fill(context: Path) -> str:
        shutil.copy2(binary("kube-proxy"), context / "kube-proxy")
        tools = context / "tools"
        for path in _with_libraries(root, KUBE_PROXY_TOOLS):
            target = tools / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path.lstrip("/"), target)
        for name in IPTABLES:
            for what in ("", "-save", "-restore"):
                (tools / f"usr/sbin/{name}{what}").symlink_to(f"{name}-nft{what}")
        return (
            "FROM scratch\nCOPY tools /\nCOPY kube-proxy /usr/local/bin/kube-proxy\n"
            "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
            'ENTRYPOINT ["/usr/local/bin/kube-proxy"]\n'
        )

    made_from = [str(PROGRAMS["kube-proxy"]), Path(__file__).read_text()]
    return archive_of_image("kube-proxy", KUBE_PROXY, made_from, fill)


def _with_libraries(root: Path, programs: Sequence[str]) -> set[str]:
    """Paths in this root, as the loader says them, and the extensions of iptables with theirs."""
    extensions = (root / "usr/lib").glob("*-linux-gnu/xtables/*.so")
    all_of_them = [*programs, *(f"/{each.relative_to(root)}" for each in extensions)]
    said = _run("chroot", root, "ldd", *all_of_them)
    return {*all_of_them, *re.findall(r"(/\S+) \(0x", said)}


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["failed"]
        raise CannotBuild(f"node image: {Path(command[0]).name} {command[1]}: {lines[-1]}")
    return done.stdout.strip()


def main() -> int:
    try:
        print(archive())
    except CannotBuild as failure:
        print(f"e2e: {failure}", file=sys.stderr)
        return 8
    return 0


if __name__ == "__main__":
    sys.exit(main())
