"""One small Spark session for the tests of a process, started when first asked for."""

from __future__ import annotations

import importlib.util
import os
import shutil
from functools import lru_cache
from typing import Any

_SETTINGS = {
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1", "spark.driver.memory": "600m", "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "America/New_York", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto",
}  # fmt: skip


def missing() -> str | None:
    """Why there is no Spark here, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'discreet-privacy[spark]'"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "no Java here, which Spark runs in"
    return None


@lru_cache(1)
def session() -> Any:
    """It ends with the process. Its time zone has a day of 23 hours, so that nothing may pass through it unseen."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("tests")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
