"""An Airflow DAG: `export` each hour, from a cluster to Parquet.

Where Airflow runs there is Java 17 and `pip install 'shardlog[spark]'`.  A run that fails or is
killed is tried again as it is: `export` goes on from its own bookkeeping.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "shardlog_export",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # only one export may write to a directory at a time
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    BashOperator(
        task_id="export",
        bash_command=(
            "shardlog spark export --cluster http://shardlog-operator.logs:7300 "
            "--shard orders --out /lake/orders --compact 24 --html /lake/orders.html"
        ),
    )
