"""``python -m workloads.spark.recorder``."""

import signal
import sys

from workloads.spark.recorder.record import main

# Stopped in whichever way, no process of the cluster may stay behind.
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
