"""spark-submit spark-jobs/jobs/export.py --help"""

import sys

from shardlog_spark.export_job import main

if __name__ == "__main__":
    sys.exit(main())
