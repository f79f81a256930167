package decima.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ActiveJob;
import org.apache.spark.scheduler.TaskSetManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * The incomplete jobs in order of arrival. The scheduler reports stages. The listener reports queries, tasks, and ends
 * of Spark jobs. This class has its own lock and calls no other class, so both may call it at any time.
 */
final class JobGraph {
  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");
  private static final String[] QUERY = {"spark.sql.execution.root.id", "spark.sql.execution.id"};
  private static final String SQL = "sql-";
  private static final int LONGEST_ID = 256;
  private static final int ENDED_QUERIES = 1000;

  /** What Spark itself knows of Spark jobs and queries. */
  interface Alive {
    boolean sparkJob(int id);

    boolean query(long id);
  }

  /** Jobs by their keys. */
  private final Map<String, Job> jobs = new LinkedHashMap<>();
  private final Map<Integer, Job> bySparkJob = new ConcurrentHashMap<>();
  private final Map<Integer, Job> byStage = new ConcurrentHashMap<>();
  /** Recently ended queries: a cancelled query may still submit a Spark job. */
  private final Map<String, Boolean> endedQueries = new LinkedHashMap<String, Boolean>() {
    @Override protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
      return size() > ENDED_QUERIES;
    }
  };

  /** Compiled operators of the latest plans of SQL executions, by key, see {@link SqlPlan#compiled}. */
  private final Map<String, Map<String, List<String>>> compiled = new LinkedHashMap<String, Map<String, List<String>>>() {
    @Override protected boolean removeEldestEntry(Map.Entry<String, Map<String, List<String>>> eldest) {
      return size() > ENDED_QUERIES;
    }
  };

  /** Spark jobs (by id) and queries (by key) that Spark did not know at the last call of {@link #endMissed}. */
  private Set<Object> unknown = new HashSet<>();

  // ---- called by the scheduler, in the DAG scheduler's thread, so that its tables may be read

  synchronized void stageOpened(SparkContext context, TaskSetManager set) {
    Properties properties = set.taskSet().properties();
    int sparkJob = set.priority();
    Job job = bySparkJob.get(sparkJob);
    if (job == null) {
      job = job(key(properties, sparkJob), sparkJob, System.currentTimeMillis());
      bySparkJob.put(sparkJob, job);
      job.sparkJobs.add(sparkJob);
      job.describe(properties == null ? null : properties.getProperty("spark.job.description"), false);
      String pool = properties == null ? null : properties.getProperty("spark.scheduler.pool");
      job.pool = pool == null ? job.pool : SqlPlan.cut(pool, SqlPlan.LONGEST_NAME);
      try {
        Option<ActiveJob> active = context.dagScheduler().jobIdToActiveJob().get(sparkJob);
        if (active.isDefined()) {
          String execution = properties == null ? null : properties.getProperty("spark.sql.execution.id");
          job.add(active.get(), context.dagScheduler().jobIdToActiveJob(), execution);
          if (compiled.containsKey(execution)) {
            job.planned(execution, compiled.get(execution));
          }
        }
      } catch (Throwable e) {
        LOG.warn("no graph for Spark job {}: {}", sparkJob, e.toString());
      }
    }
    byStage.put(set.stageId(), job);
    job.opened(set);
  }

  /** Called when a stage has ended. A stage that several jobs share has ended for all of them. */
  synchronized void stageClosed(TaskSetManager set) {
    for (Job each : jobs.values()) {
      each.closed(set);
    }
  }

  /** Returns the job of a task set; null if the job has ended. */
  Job of(TaskSetManager set) {
    return bySparkJob.get(set.priority());
  }

  // ---- called by the listener

  synchronized void queryStarted(long query, String description, long timeMs, SqlPlan plan) {
    Job job = job(SQL + query, -1, timeMs);
    job.plan = plan;
    job.submittedMs = Math.min(job.submittedMs, timeMs);
    job.describe(description, true);
  }

  /**
   * Called when the plan of a SQL execution, which may be part of another, is known or has changed.
   *
   * @return whether the operators of any stage have changed
   */
  synchronized boolean planned(long execution, Map<String, List<String>> operators) {
    String key = String.valueOf(execution);
    compiled.put(key, operators);
    boolean changed = false;
    for (Job each : jobs.values()) {
      changed |= each.planned(key, operators);
    }
    return changed;
  }

  synchronized void queryEnded(long query) {
    compiled.remove(String.valueOf(query));
    String key = SQL + query;
    endedQueries.put(key, true);
    Job job = jobs.get(key);
    if (job != null && job.sparkJobs.isEmpty()) {
      forget(key, job);
    }
  }

  synchronized void sparkJobEnded(int sparkJob) {
    Job job = bySparkJob.remove(sparkJob);
    if (job != null) {
      job.ended(sparkJob);
      String key = job.key;
      if (job.sparkJobs.isEmpty() && (!key.startsWith(SQL) || endedQueries.containsKey(key))) {
        forget(key, job);
      }
    }
  }

  synchronized void taskEnded(int stage, double durationMs) {
    Job job = byStage.get(stage);
    Job.Node node = job == null ? null : job.stages.get(stage);
    if (node != null) {
      node.timed++;
      node.totalMs += durationMs;
    }
  }

  /**
   * Ends Spark jobs and queries whose end was not reported: Spark's listener bus drops events when a queue is full. An entry
   * ends if Spark does not know it in two calls in a row, since Spark's table of jobs is read while another thread writes it.
   *
   * @return whether any has ended
   */
  synchronized boolean endMissed(Alive alive) {
    Set<Object> now = new HashSet<>();
    for (int sparkJob : new ArrayList<>(bySparkJob.keySet())) {
      if (!alive.sparkJob(sparkJob) && now.add(sparkJob) && unknown.contains(sparkJob)) {
        sparkJobEnded(sparkJob);
      }
    }
    for (Job each : new ArrayList<>(jobs.values())) {
      if (each.key.startsWith(SQL) && each.sparkJobs.isEmpty()) {
        long query = Long.parseLong(each.key.substring(SQL.length()));
        if (!alive.query(query) && now.add(each.key) && unknown.contains(each.key)) {
          queryEnded(query);
        }
      }
    }
    boolean any = now.stream().anyMatch(unknown::contains);
    unknown = now;
    return any;
  }

  synchronized boolean isEmpty() {
    return jobs.isEmpty();
  }

  /** Returns the id of the stage's job; null if the job has ended. */
  String jobOf(int stage) {
    Job job = byStage.get(stage);
    return job == null ? null : job.id;
  }

  // ---- questions

  synchronized void count(Iterable<TaskSetManager> sets) {
    for (Job each : jobs.values()) {
      each.running = 0;
    }
    for (TaskSetManager each : sets) {
      Job job = of(each);
      if (job != null) {
        job.running += each.runningTasks();
      }
    }
  }

  /** Writes the jobs to a question and returns their ids. The listener may end a job at any moment. */
  synchronized Set<String> write(ArrayNode out, long nowMs, Map<Integer, TaskSetManager> sets, boolean plans) {
    List<Job> arrived = new ArrayList<>(jobs.values());
    arrived.sort(Comparator.comparingLong(each -> each.submittedMs));
    for (Job each : arrived) {
      each.write(out.addObject(), nowMs, sets, plans);
    }
    return arrived.stream().map(each -> each.id).collect(Collectors.toSet());
  }

  private Job job(String key, int sparkJob, long timeMs) {
    return jobs.computeIfAbsent(key, each -> new Job(key, unique(key, sparkJob), timeMs));
  }

  private void forget(String key, Job job) {
    jobs.remove(key);
    byStage.values().removeIf(each -> each == job);
  }

  /** Returns the key of the job to which a Spark job belongs. */
  private static String key(Properties properties, int sparkJob) {
    if (properties != null) {
      for (String each : QUERY) {
        if (properties.getProperty(each) != null) {
          return SQL + properties.getProperty(each);
        }
      }
      if (properties.getProperty("spark.jobGroup.id") != null) {
        return "group-" + properties.getProperty("spark.jobGroup.id");
      }
    }
    return "job-" + sparkJob;
  }

  /** Adds the id of the first Spark job to the key, since a program may reuse a name after the job has ended. */
  private static String unique(String key, int sparkJob) {
    if (key.startsWith(SQL) || key.startsWith("job-")) {
      return key;
    }
    String suffix = "@" + sparkJob;
    return SqlPlan.cut(key, LONGEST_ID - suffix.length()) + suffix;
  }
}
