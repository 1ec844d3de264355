"""A Spark session as the product needs it: local by default, or on whatever cluster is named."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.conf import SparkConf
from pyspark.sql import SparkSession

from packhorse.errors import PackhorseError
from packhorse_services.pipeline.engine import kubernetes
from packhorse_services.pipeline.engine.jars import class_archive, java, require_jars
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location

_DEFAULTS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Delta plans its own bookkeeping for 50 tasks; ours is small (measured: 3 times slower).
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    # A record may have 1 MiB: what is read at a time is bounded in bytes (R30).
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    "spark.sql.parquet.columnarReaderBatchSize": "256",
    "spark.hadoop.parquet.block.size": str(32 * 1024 * 1024),
    "spark.ui.showConsoleProgress": "false",
    # Else PySpark asks the JVM three things more with each expression, for the line of an error.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Within it a result is fetched from the JVM; a busy machine may stand still for Spark's 15 s.
    "spark.python.authenticate.socketTimeout": "300s",
}
_LOCAL = {
    # Not on a cluster, whose machines have packhorse at other paths.
    "spark.python.daemon.module": "packhorse_services.pipeline.engine.python_daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),  # for its `sitecustomize`
    # Nothing is kept there, but Spark makes the folder, by default where the program was started.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "packhorse-spark-warehouse")),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Plans of the last 1,000 queries are kept for the UI, also where there is none.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.shuffle.partitions": "8",
    "spark.default.parallelism": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
_LATE_COMPILER = (
    " -XX:Tier4InvocationThreshold=500000 -XX:Tier4MinInvocationThreshold=60000"
    " -XX:Tier4CompileThreshold=1500000 -XX:Tier4BackEdgeThreshold=4000000"
)
"""Java's second compiler comes a hundred times later: short runs would pay for it in vain."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_JVM_ENDS_S = 300.0  # on a busy machine it takes minutes to write down its classes
_shared: ContextVar[list[SparkSession] | None] = ContextVar("shared", default=None)
_S3_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def spark_session(settings: Settings, location: Location, name: str) -> SparkSession:
    """Return this process's session for the task `name`.

    What `spark-submit` was given, the master and the jars among it, is not overruled; else they
    are the settings'. Raises `JarsMissing`, `JavaUnusable`, and what `translated` raises.
    """
    try:
        with translated(name):
            return _session(settings, location, name)
    except PackhorseError:
        if SparkContext._active_spark_context is None:
            _end_jvm()
        raise


@contextmanager
def running_spark(settings: Settings, location: Location, name: str) -> Iterator[SparkSession]:
    """Give a `spark_session` that ends with the block, or with that of `one_session` around it.

    Raises what `spark_session` raises.
    """
    spark = spark_session(settings, location, name)
    shared = _shared.get()
    if shared is not None:
        shared.append(spark)
        yield spark
        return
    try:
        yield spark
    finally:
        end_spark(spark)


@contextmanager
def one_session() -> Iterator[None]:
    """Let every `running_spark` of the block have one session, which ends with the block."""
    shared: list[SparkSession] = []
    token = _shared.set(shared)
    try:
        yield
    finally:
        _shared.reset(token)
        if shared:
            end_spark(shared[0])


def end_spark(spark: SparkSession) -> None:
    """End the session, and the JVM that this process has started for it. Raises nothing.

    A JVM that ends later than its session still hands on what Spark's workers say of that, after
    the last words of the program.
    """
    with suppress(Py4JError, OSError):  # whoever needs a JVM that has died reports it
        spark.stop()
    _end_jvm()


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    jvm = getattr(gateway, "proc", None)  # none where `spark-submit` is the JVM
    if gateway is None or jvm is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    jvm.stdin.close()
    try:
        jvm.wait(_JVM_ENDS_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _session(settings: Settings, location: Location, name: str) -> SparkSession:
    submitted = _submitted()
    conf = dict(_DEFAULTS) | location.hadoop_conf()
    master = submitted.get("spark.master", None)
    if master is None:
        master = settings.spark_master
        conf |= {"spark.master": master} | _launch(settings, master)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = _LOCAL | conf
    else:  # executors have an environment of their own, and read blobs
        conf |= _keys_for_executors(dict(submitted.getAll()) | settings.spark_conf)
    return _build(
        _with_java_options(conf | settings.spark_conf, master),
        dict(submitted.getAll()),
        f"packhorse {name}",
    )


def _keys_for_executors(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return what gives S3's keys to executors, but for those that a secret of theirs gives."""
    keys = (key for key in _S3_KEYS if kubernetes.secret_of(key, "executor") not in chosen)
    return {f"spark.executorEnv.{key}": os.environ[key] for key in keys if key in os.environ}


def _submitted() -> SparkConf:
    """Return what `spark-submit` was given; nothing is in it where this process starts the JVM."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # its JVM knows, and is there only once asked for
        SparkContext._ensure_initialized()
    return SparkConf()


def _launch(settings: Settings, master: str) -> dict[str, str]:
    """Return the settings that count only before the JVM has started."""
    folder = require_jars(settings.spark_jars)
    os.environ["JAVA_HOME"] = str(java().parent.parent)
    conf = {"spark.driver.memory": settings.spark_memory}
    if master.startswith("local"):
        return {**conf, _CLASS_PATH: f"{folder}/*"}
    conf["spark.submit.deployMode"] = "client"  # whatever the cluster's own defaults say
    if kubernetes.is_kubernetes(master):
        return {**conf, **kubernetes.driver_here(settings)}
    return {**conf, "spark.jars": ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))}


def _with_java_options(conf: Mapping[str, str], master: str) -> dict[str, str]:
    """Return `conf` with the JVM's own log lines cut down, collector and compiler fit for the work.

    Options that say something of either win.
    """
    if not master.startswith("local"):
        return dict(conf)
    options = conf.get(JAVA_OPTIONS, "")
    if "log4j2" not in options:
        file = Path(__file__).with_name("log4j2.properties")
        options += f" -Dlog4j2.configurationFile=file:{file}"
    said = (options, conf.get(_DEFAULT_JAVA_OPTIONS, ""), *map(os.environ.get, _JAVA_VARIABLES))
    if not any(re.search(r"-XX:[+]Use\w+GC\b", each or "") for each in said):
        options += " -XX:+UseParallelGC"
    if not any("Tier" in (each or "") for each in said):
        options += _LATE_COMPILER
    if not any("Archive" in (each or "") for each in said):
        options = f"{_shared_classes(conf)} {options}"
    return {**conf, JAVA_OPTIONS: options}


def _shared_classes(conf: Mapping[str, str]) -> str:
    """Return the options of a JVM that maps the classes of earlier ones, where they are there.

    What does not fit this JVM it leaves alone, and its warnings of that are of no use to anybody.
    """
    folder = conf.get(_CLASS_PATH, "").removesuffix("/*")
    if not folder or not (archive := class_archive(Path(folder))).is_file():
        return ""
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    return f"{quiet} -Xshare:auto -XX:SharedArchiveFile={archive}"


def _build(conf: Mapping[str, str], submitted: Mapping[str, Any], name: str) -> SparkSession:
    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        if key not in submitted:
            builder = builder.config(key, value)
    if SparkContext._gateway is None:
        _start_jvm(conf)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _look_up_once(SparkContext._jvm)
    return session


def _start_jvm(conf: Mapping[str, str]) -> None:
    """Start the JVM with `conf`. PySpark would write it all on the command line."""
    name = "PYSPARK_SUBMIT_ARGS"
    before = os.environ.get(name)
    with properties_file(conf) as options:
        os.environ[name] = f"{shlex.join(options)} {before or 'pyspark-shell'}"
        try:
            SparkContext._ensure_initialized()
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


@contextmanager
def properties_file(conf: Mapping[str, str]) -> Iterator[list[str]]:
    """Give the options by which `spark-submit` reads `conf` from a file, which ends with the block.

    Everybody may read a command line, also its secrets.
    """
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:  # nobody else may read it
        file.writelines(f"{key}={_of_properties(value)}\n" for key, value in conf.items())
        file.flush()
        yield ["--load-spark-defaults", "--properties-file", file.name]


def _of_properties(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _look_up_once(jvm: Any) -> None:
    """Keep what PySpark asks the JVM for with each expression.

    Each time it would look into all jars for it, in several packages.
    """
    for name in ("functions", "PythonUtils"):
        setattr(jvm, name, getattr(jvm, name))
