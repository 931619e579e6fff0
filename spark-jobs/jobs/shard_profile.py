"""spark-submit spark-jobs/jobs/shard_profile.py --help

A file `profile.py` here would stand before Python's own module of that name, which Spark imports.
"""

import sys

from shardlog_spark.profile_job import main

if __name__ == "__main__":
    sys.exit(main())
