#!/bin/sh
# `spinney pipeline` by a cluster's own spark-submit: SPARK_HOME=/opt/spark cloud/spark-submit.sh MASTER [OPTION ...]
#
# Options are those of spinney pipeline, but --master, --heap and --cores: say those in spark-defaults.conf, or in
# SUBMIT_OPTIONS ("--executor-memory 2g --num-executors 6"). The lake and the checkpoints must be where driver and
# executors see them: --lake and --checkpoints on shared storage, or URLs. PYTHON (python3 unless set) has
# spinney[pipeline], here and, by the same path, on the executors.
set -eu
[ $# -gt 0 ] || { echo "usage: SPARK_HOME=/opt/spark $0 MASTER [OPTION of spinney pipeline ...]" >&2; exit 2; }
master=$1
shift
python=$(command -v "${PYTHON:-python3}") || { echo "$0: there is no ${PYTHON:-python3}" >&2; exit 1; }
program=$("$python" -c 'from importlib.util import find_spec; print(find_spec("spinney_cloud.pipeline.submitted").origin)')
# shellcheck disable=SC2086  # the words of SUBMIT_OPTIONS are options each
PYSPARK_PYTHON=$python exec "${SPARK_HOME:?where is Spark?}/bin/spark-submit" --master "$master" --deploy-mode client \
  --conf spark.sql.shuffle.partitions=8 --conf spark.python.daemon.module=spinney_cloud.pipeline.workers \
  ${SUBMIT_OPTIONS:-} "$program" "$@"
