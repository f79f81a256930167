package decima.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import scala.Option;

/** The current executors of the application, in order of registration. */
final class Executors {
  private static final class Executor {
    final int slots;
    String job;
    /** Latest time at which the end of the executor's pod is awaited; 0 before the driver has killed the executor. */
    long endsMs;

    Executor(int slots) {
      this.slots = slots;
    }
  }

  private static final String KILLED = "Executor killed by driver.";
  /** Without a report of the end of a pod, its slot counts as occupied for this time. */
  private static final long LONGEST_END_MS = 60_000;

  private final Map<String, Executor> executors = new LinkedHashMap<>();
  private boolean pods;

  /** On Kubernetes, a killed executor occupies a slot until a second event reports that its pod has ended. */
  synchronized void awaitEndOfPods() {
    pods = true;
  }

  synchronized void added(String id, int slots) {
    executors.put(id, new Executor(slots));
  }

  synchronized void removed(String id, String reason) {
    Executor executor = executors.get(id);
    if (pods && executor != null && executor.endsMs == 0 && KILLED.equals(reason)) {
      executor.endsMs = System.currentTimeMillis() + LONGEST_END_MS;
    } else {
      executors.remove(id);
    }
  }

  /** Records that the executor runs a task of the job. */
  synchronized void ran(String id, String job) {
    Executor executor = executors.get(id);
    if (executor != null && job != null) {
      executor.job = job;
    }
  }

  synchronized int count() {
    return (int) executors.values().stream().filter(each -> each.endsMs == 0).count();
  }

  /** Returns the number of task slots. */
  synchronized int slots() {
    return executors.values().stream().filter(each -> each.endsMs == 0).mapToInt(each -> each.slots).sum();
  }

  /** Writes the executors to a question. Called under the scheduler's lock. */
  synchronized void write(ArrayNode out, TaskSchedulerImpl scheduler, Set<String> jobs) {
    scala.collection.immutable.Map<String, Object> running = scheduler.runningTasksByExecutors();
    long now = System.currentTimeMillis();
    executors.values().removeIf(each -> each.endsMs != 0 && each.endsMs < now);
    executors.forEach((id, executor) -> {
      Option<Object> tasks = running.get(id);
      out.addObject().put("id", id).put("slots", executor.slots)
          .put("running", tasks.isDefined() ? (Integer) tasks.get() : 0)
          .put("job", jobs.contains(executor.job) ? executor.job : null)
          .put("leaving", executor.endsMs != 0 || scheduler.isExecutorDecommissioned(id));
    });
  }
}
