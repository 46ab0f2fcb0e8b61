"""`python -m tests.spark.version 4.1.4` ends with one line if the sources do not work with that version of PySpark.

Short: `make test-spark SPARK=4.1.4` asks before it installs half a gigabyte.
"""

from __future__ import annotations

import sys

from rocketpy.errors import ConfigError
from rocketpy.spark.session import check_pyspark

if __name__ == "__main__":
    try:
        check_pyspark(sys.argv[1])
    except ConfigError as error:
        raise SystemExit(f"rocketpy: {error}") from None
