#!/bin/sh
# Entry point of the Spark image. Spark starts an executor's container with the argument `executor` and describes it in
# environment variables; everything else is a command that is run as it is. tini reaps what Spark's workers leave.
set -eu
[ "${1:-}" = executor ] || exec tini -s -- "$@"

# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one option of the JVM each, in this order. An incubator module, which only
# Spark's machine learning uses, is left out: the JVM warns of it in a line that is no JSON.
set --
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number+given}\" ]"; do
  eval "option=\$SPARK_JAVA_OPT_$number"
  [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
  number=$((number + 1))
done
# An executor asks the driver for its settings, its master among them, over a connection that is authenticated; a secret
# out of a file is only taken under a master that is Kubernetes.
exec tini -s -- java "$@" -Dspark.master=k8s://executor -XX:-UsePerfData "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
