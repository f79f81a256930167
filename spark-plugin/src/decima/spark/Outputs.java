package decima.spark;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Tracks executors with map outputs that an incomplete job may still read. Without an external shuffle service, map
 * outputs are lost with their executor, and their stages would run again.
 */
final class Outputs {
  /** The listener receives the last output of an executor at most this long after the executor became idle. */
  private static final int SETTLED_MS = 1_000;

  private final JobGraph jobs;
  /** Maps an executor to the stages whose map tasks it ran. */
  private final Map<String, Set<Integer>> stages = new ConcurrentHashMap<>();
  private final Map<String, Long> idleMs = new ConcurrentHashMap<>();

  Outputs(JobGraph jobs) {
    this.jobs = jobs;
  }

  void taskEnded(String executor, int stage, String type) {
    if (type.equals("ShuffleMapTask")) {
      stages.computeIfAbsent(executor, each -> ConcurrentHashMap.newKeySet()).add(stage);
    }
  }

  void removed(String executor) {
    stages.remove(executor);
    idleMs.remove(executor);
  }

  /** Whether an incomplete job may read outputs of the executor. */
  boolean holds(String executor) {
    Set<Integer> written = stages.getOrDefault(executor, new HashSet<>());
    written.removeIf(stage -> jobs.jobOf(stage) == null);
    return !written.isEmpty();
  }

  /** Whether an executor that gets no more tasks can be killed. */
  boolean mayGo(String executor, boolean busy) {
    if (busy) {
      return false;
    }
    long now = System.currentTimeMillis();
    return now - idleMs.computeIfAbsent(executor, each -> now) >= SETTLED_MS && !holds(executor);
  }
}
