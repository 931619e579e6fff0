"""spark-submit spark-jobs/jobs/audit.py --help"""

import sys

from shardlog_spark.audit_job import main

if __name__ == "__main__":
    sys.exit(main())
