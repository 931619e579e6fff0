"""What a container of the image `shardlog-spark` runs.

Spark on Kubernetes starts containers with one word, `driver` or `executor`, and says the rest by
environment variables.  The wheel of PySpark brings all that is needed for this but the program that
understands them, which is this one.  Any other words are a command of their own, as `shardlog
snapshot create …`.

    python3 -m shardlog_spark.pod driver --master k8s://… local:///opt/shardlog/jobs/export.py …
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTION = "SPARK_JAVA_OPT_"
BACKEND_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
USAGE, NOT_FOUND = 2, 127

Variables = Mapping[str, str]


class NotSet(Exception):  # noqa: N818 - named after what it is
    """A variable is missing that Spark sets; the message is one line for a person."""


def command(words: Sequence[str], variables: Variables, home: Path) -> list[str]:
    """What to run; raises `NotSet`."""
    match words:
        case ["driver", *rest]:
            return _driver(rest, variables, home)
        case ["executor", *rest]:
            return [*_executor(variables, home), *rest]
        case []:
            return [str(home / "bin" / "spark-submit"), "--help"]
    return list(words)


def _driver(rest: Sequence[str], variables: Variables, home: Path) -> list[str]:
    """A driver is where its container is, however it got there."""
    address = _required(variables, "driver", "SPARK_DRIVER_BIND_ADDRESS")
    submit = [str(home / "bin" / "spark-submit"), "--deploy-mode", "client"]
    return [*submit, "--conf", f"spark.driver.bindAddress={address}", *rest]


def _executor(variables: Variables, home: Path) -> list[str]:
    def required(name: str) -> str:
        return _required(variables, "executor", name)

    memory = required("SPARK_EXECUTOR_MEMORY")
    java = Path(variables["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in variables else "java"
    given = [word for option, name in BACKEND_OPTIONS.items() for word in (option, required(name))]
    return [
        str(java),
        *_java_options(variables),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        _classpath(variables, home),
        BACKEND,
        *given,
    ]


def _java_options(variables: Variables) -> list[str]:
    """One variable each, with numbers that give their order."""
    numbers = sorted(
        int(name.removeprefix(OPTION))
        for name in variables
        if name.startswith(OPTION) and name.removeprefix(OPTION).isdecimal()
    )
    return [variables[f"{OPTION}{number}"] for number in numbers]


def _classpath(variables: Variables, home: Path) -> str:
    """Configuration first, then what the job brings, then Spark."""
    names = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_CLASSPATH")
    found = [variables[name] for name in names if variables.get(name)]
    return ":".join([*found, f"{home}/jars/*"])


def _required(variables: Variables, role: str, name: str) -> str:
    value = variables.get(name)
    if not value:
        raise NotSet(f"{role}: {name} is not set, which Spark sets when it makes the pod")
    return value


def environment(variables: Variables) -> dict[str, str]:
    """As it was, but for the libraries that `spark.executor.extraLibraryPath` names."""
    libraries = variables.get("SPARK_EXECUTOR_LIBRARY_PATH")
    if not libraries:
        return dict(variables)
    before = variables.get("LD_LIBRARY_PATH")
    return {**variables, "LD_LIBRARY_PATH": f"{libraries}:{before}" if before else libraries}


def spark_home() -> Path:
    """Where the wheel was installed; found without importing it, which takes long."""
    found = find_spec("pyspark")
    assert found is not None, "the image has PySpark"
    assert found.origin is not None, "PySpark is a package with files"
    return Path(found.origin).parent


def main() -> int:
    try:
        words = command(sys.argv[1:], os.environ, spark_home())
    except NotSet as failure:
        print(failure, file=sys.stderr)
        return USAGE
    try:
        os.execvpe(words[0], words, environment(os.environ))
    except OSError as failure:
        print(f"{words[0]}: {failure.strerror}", file=sys.stderr)
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main())
