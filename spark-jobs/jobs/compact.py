"""spark-submit spark-jobs/jobs/compact.py --help"""

import sys

from shardlog_spark.compact_job import main

if __name__ == "__main__":
    sys.exit(main())
