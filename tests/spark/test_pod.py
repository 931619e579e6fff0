"""What a container of the image runs, and that Spark's wheel has what it needs for Kubernetes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from shardlog import __version__
from shardlog_spark.pod import BACKEND, BACKEND_OPTIONS, NotSet, command, environment, spark_home

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "spark-jobs" / "jobs"
MANIFESTS = ROOT / "spark-jobs" / "kubernetes"
HOME = Path("/spark")
SET_BY_SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "export-exec-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_a_driver_is_submitted_where_its_container_is():
    variables = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.3"}
    words = [
        "driver",
        "--master=k8s://https://api",
        "local:///opt/shardlog/jobs/export.py",
        "--help",
    ]
    assert command(words, variables, HOME) == [
        *("/spark/bin/spark-submit", "--deploy-mode", "client"),
        *("--conf", "spark.driver.bindAddress=10.0.0.3"),
        *words[1:],
    ]


def test_an_executor_is_told_all_that_spark_set():
    found = command(["executor"], SET_BY_SPARK, HOME)
    java, *options = found[: found.index(BACKEND)]
    assert java == "java"
    assert options == ["-Xms512m", "-Xmx512m", "-cp", "/spark/jars/*"]
    given = found[found.index(BACKEND) + 1 :]
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        option: SET_BY_SPARK[name] for option, name in BACKEND_OPTIONS.items()
    }


def test_options_of_java_keep_their_order():
    given = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 9, 0, 1, 11)}
    found = command(["executor"], SET_BY_SPARK | given, HOME)
    assert found[1:6] == [f"-Dn={number}" for number in (0, 1, 9, 10, 11)]


def test_where_java_and_classes_are():
    given = {"JAVA_HOME": "/java", "SPARK_CLASSPATH": "/more/*", "SPARK_CONF_DIR": "/conf"}
    found = command(["executor"], SET_BY_SPARK | given, HOME)
    assert found[0] == "/java/bin/java"
    assert found[found.index("-cp") + 1] == "/conf:/more/*:/spark/jars/*"


def test_libraries_of_executors():
    given = {"SPARK_EXECUTOR_LIBRARY_PATH": "/native"}
    assert environment(given)["LD_LIBRARY_PATH"] == "/native"
    assert environment(given | {"LD_LIBRARY_PATH": "/own"})["LD_LIBRARY_PATH"] == "/native:/own"
    assert environment({"A": "b"}) == {"A": "b"}


@pytest.mark.parametrize("missing", SET_BY_SPARK)
def test_what_is_missing_is_named(missing: str):
    variables = {name: value for name, value in SET_BY_SPARK.items() if name != missing}
    with pytest.raises(NotSet, match=rf"^executor: {missing} is not set"):
        command(["executor"], variables, HOME)


def test_other_words_are_a_command():
    words = ["shardlog", "snapshot", "create", "orders", "file:///snapshots"]
    assert command(words, {}, HOME) == words


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shardlog_spark.pod", *words],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_command_that_is_not_there_is_one_line():
    done = run("no-such-program")
    assert (done.returncode, done.stderr) == (127, "no-such-program: No such file or directory\n")


def test_a_driver_outside_of_kubernetes_is_one_line():
    done = run("driver", SPARK_DRIVER_BIND_ADDRESS="")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.needs("java")
def test_a_driver_runs_a_job():
    done = run(
        *("driver", "--master=local[1]", "--conf=spark.ui.enabled=false"),
        *(f"local://{JOBS / 'export.py'}", "--help"),
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: export")


def test_the_wheel_has_spark_on_kubernetes():
    (jar,) = (spark_home() / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        backend = classes.read(f"{BACKEND.replace('.', '/')}$.class")
    for option in BACKEND_OPTIONS:
        assert option.encode() in backend


def test_manifests_name_the_image_of_this_version():
    found = re.findall(r"shardlog-spark:(\S+)", "".join(map(Path.read_text, MANIFESTS.iterdir())))
    assert set(found) == {__version__}
    assert len(found) == 3


def test_the_job_runs_what_the_image_has():
    (job,) = yaml.safe_load_all((MANIFESTS / "export.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    places = re.findall(r"/opt/shardlog/(\S+)", " ".join(container["args"]))
    assert len(places) == 3
    for place in places:
        assert (ROOT / "spark-jobs" / place).exists()
