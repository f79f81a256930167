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

    Executor(int slots) {
      this.slots = slots;
    }
  }

  private final Map<String, Executor> executors = new LinkedHashMap<>();

  synchronized void added(String id, int slots) {
    executors.put(id, new Executor(slots));
  }

  synchronized void removed(String id) {
    executors.remove(id);
  }

  /** Notes that the executor runs a task of the job. */
  synchronized void ran(String id, String job) {
    Executor executor = executors.get(id);
    if (executor != null && job != null) {
      executor.job = job;
    }
  }

  synchronized int count() {
    return executors.size();
  }

  /** Number of task slots. */
  synchronized int slots() {
    return executors.values().stream().mapToInt(each -> each.slots).sum();
  }

  /** Under the scheduler's lock. */
  synchronized void write(ArrayNode out, TaskSchedulerImpl scheduler, Set<String> jobs) {
    scala.collection.immutable.Map<String, Object> running = scheduler.runningTasksByExecutors();
    executors.forEach((id, executor) -> {
      Option<Object> tasks = running.get(id);
      out.addObject().put("id", id).put("slots", executor.slots)
          .put("running", tasks.isDefined() ? (Integer) tasks.get() : 0)
          .put("job", jobs.contains(executor.job) ? executor.job : null)
          .put("leaving", scheduler.isExecutorDecommissioned(id));
    });
  }
}
