package decima.spark;

import java.util.List;
import java.util.Map;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import scala.Option;

/** Forwards events of Spark's listener bus: task durations, executors, start and end of queries and Spark jobs. */
final class Watcher extends SparkListener {
  private static final String SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution";
  /** Event of adaptive execution: the plan of a query has changed. */
  private static final String ADAPTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate";

  private final JobGraph jobs;
  private final Executors executors;
  private final double cpusPerTask;
  /** Called after events that may change the policy's answer. */
  private final Runnable onEvent;
  private final Trouble trouble;

  Watcher(JobGraph jobs, Executors executors, double cpusPerTask, Runnable onEvent, Trouble trouble) {
    this.jobs = jobs;
    this.executors = executors;
    this.cpusPerTask = cpusPerTask;
    this.onEvent = onEvent;
    this.trouble = trouble;
  }

  @Override public void onTaskStart(SparkListenerTaskStart event) {
    guarded(() -> executors.ran(event.taskInfo().executorId(), jobs.jobOf(event.stageId())));
  }

  @Override public void onTaskEnd(SparkListenerTaskEnd event) {
    guarded(() -> {
      if (event.taskInfo() != null && event.taskInfo().successful()) {
        jobs.taskEnded(event.stageId(), event.taskInfo().duration());
      }
    });
  }

  @Override public void onExecutorAdded(SparkListenerExecutorAdded event) {
    guarded(() -> {
      executors.added(event.executorId(), (int) (event.executorInfo().totalCores() / cpusPerTask));
      onEvent.run();
    });
  }

  @Override public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    guarded(() -> {
      executors.removed(event.executorId(), event.reason());
      onEvent.run();
    });
  }

  @Override public void onJobEnd(SparkListenerJobEnd event) {
    guarded(() -> {
      jobs.sparkJobEnded(event.jobId());
      onEvent.run();
    });
  }

  /** Spark stops the application after an {@code Error} of a listener. */
  private void guarded(Runnable work) {
    try {
      work.run();
    } catch (Throwable e) {
      trouble.warn("event of the listener bus passed over", e);
    }
  }

  /** Reads SQL events by reflection, since Spark's SQL module may be absent and its events differ between versions. */
  @Override public void onOtherEvent(SparkListenerEvent event) {
    String type = event.getClass().getName();
    try {
      if (type.equals(SQL + "Start")) {
        queryStarted(event);
      } else if (type.equals(ADAPTED)) {
        planned(event);
      } else if (type.equals(SQL + "End")) {
        jobs.queryEnded((Long) Reflect.get(event, "executionId"));
        onEvent.run();
      }
    } catch (Throwable e) {
      trouble.warn(type + " not understood", e);
    }
  }

  private void queryStarted(SparkListenerEvent event) throws ReflectiveOperationException {
    long id = (Long) Reflect.get(event, "executionId");
    planned(event);
    if (isPartOfAnother(event, id)) {
      return;
    }
    SqlPlan plan = new SqlPlan(Reflect.get(event, "sparkPlanInfo"));
    jobs.queryStarted(id, (String) Reflect.get(event, "description"), (Long) Reflect.get(event, "time"), plan);
  }

  /** Keeps the compiled operators of a plan, from which those of the execution's stages follow. */
  private void planned(SparkListenerEvent event) throws ReflectiveOperationException {
    Map<String, List<String>> compiled = SqlPlan.compiled(Reflect.get(event, "sparkPlanInfo"));
    if (jobs.planned((Long) Reflect.get(event, "executionId"), compiled)) {
      onEvent.run();
    }
  }

  /** Returns the query that started this query; known from Spark 3.4 on. */
  private static boolean isPartOfAnother(SparkListenerEvent event, long id) throws ReflectiveOperationException {
    try {
      Option<?> root = (Option<?>) Reflect.get(event, "rootExecutionId");
      return root.isDefined() && (Long) root.get() != id;
    } catch (NoSuchMethodException e) {
      return false;
    }
  }
}
