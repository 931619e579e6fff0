"""spark-submit spark-jobs/jobs/sessionize.py --help"""

import sys

from shardlog_spark.sessionize_job import main

if __name__ == "__main__":
    sys.exit(main())
