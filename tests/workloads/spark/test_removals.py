"""Which removals of executors are losses, by the texts that Spark's schedulers write."""

from tests.cases import cases
from workloads.spark.removals import is_loss

YARN = "Container container_e02_1700000000000_0001_01_000003"
POD = "The executor with id 3 exited with exit code"
API = "The API gave the following brief reason:"


@cases(
    "reason, lost",
    # Requested by the driver, or by an administrator.
    ("Executor killed by driver.", False),
    ("Executor decommission.", False),
    ("Executor decommission: spark scale down", False),
    ("Executor decommission: Executor 3 is decommissioned.", False),
    ("Executor decommission: worker decommissioned because of kill request from HTTP endpoint", False),
    ("worker decommissioned: x", False),
    ("Finished decommissioning", False),
    (f"{YARN} exited from explicit termination request.", False),
    (f"Executor for container {YARN} exited after Application shutdown.", False),
    (f"{YARN} marked as failed. Exit status: -105. Diagnostics: Container killed by the ApplicationMaster.", False),
    (f"{YARN} marked as failed. Exit status: -100. Diagnostics: Container released by application", False),
    (f"{YARN} marked as failed. Exit status: -100. Diagnostics: Container of a completed application", False),
    ("The executor with id 3 was deleted by a user or the framework.", False),
    (f"\n{POD} 0(SUCCESS).\n{API} N/A\n", False),
    ("Command exited with code 0", False),
    ("Executor finished with state KILLED", False),
    # Losses.
    ("worker lost", True),
    ("Slave lost", True),
    ("Executor Process Lost", True),
    ("Executor heartbeat timed out after 130123 ms", True),
    ("Remote RPC client disassociated. Likely due to containers exceeding thresholds, or network issues.", True),
    ("Command exited with code 1", True),
    ("Command exited with code 137", True),
    ("Command exited with code 143", True),
    ("Worker shutting down", True),
    ("Executor finished with state LOST", True),
    ("Executor decommission: worker decommissioned because of spot instance preemption", True),
    (f"{YARN} on host: h was preempted.", True),
    (f"Executor for container {YARN} exited because of a YARN event (e.g., preemption) and not because of", True),
    ("Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB physical memory used.", True),
    (f"{YARN} marked as failed. Exit status: -100. Diagnostics: Container released on a *lost* node", True),
    ("Container from a bad node: c on host: h. Exit status: 143. Diagnostics: Container killed on request.", True),
    (f"\n{POD} 137(SIGKILL, possible container OOM).\n{API} Evicted\n", True),
    (f"\n{POD} 0(SUCCESS).\n{API} Evicted\n", True),
    ("The executor with ID 3 was not found in the cluster but we didn't get a reason why.", True),
    ("something new", True),
    ("", True),
)  # fmt: skip
def test_losses(reason, lost):
    assert is_loss(reason) == is_loss(reason.upper()) == lost
