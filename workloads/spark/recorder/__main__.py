"""``python -m workloads.spark.recorder``."""

import signal
import sys

from workloads.spark.recorder.record import main

# SIGTERM stops the processes of the cluster, as Ctrl-C does.
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
