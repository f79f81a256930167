package decima.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.util.RawValue;
import java.util.ArrayDeque;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.ActiveJob;
import org.apache.spark.scheduler.ShuffleMapStage;
import org.apache.spark.scheduler.Stage;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskSetManager;

/**
 * One job of Decima: a SQL query, a job group or a single Spark job, with the stages of all its Spark jobs that have
 * started. Guarded by the lock of {@link JobGraph}.
 */
final class Job {
  /** A stage, over all its attempts. */
  static final class Node {
    final int id;
    final String name;
    final int tasks;
    /** Parent stages; all have lower ids. */
    final SortedSet<Integer> parents = new TreeSet<>();
    /** Parents of which an earlier Spark job left the output, or whose end the driver awaited. */
    final Set<Integer> indirect = new HashSet<>();
    /** Spark jobs that need the stage. */
    final Set<Integer> sparkJobs = new HashSet<>();
    int attempt;
    /** Number of tasks that succeeded in earlier attempts and will not run again. */
    int before;
    /** Whether all tasks have run. Spark may run tasks again later if their output is lost. */
    boolean over;
    /** Number of successful tasks, for their mean duration. */
    long timed;
    double totalMs;
    /** Key of the SQL execution that the stage belongs to; null outside of SQL. */
    String execution;
    /** See {@link StageInputs}. */
    List<String> scopes = Collections.emptyList();
    List<String> operators = Collections.emptyList();
    Long inputBytes;

    Node(int id, String name, int tasks) {
      this.id = id;
      this.name = name;
      this.tasks = tasks;
    }
  }

  /** Descriptions that name no query: of broadcasts (Spark 3.0 and later), of file listings, and of Livy's statements. */
  private static final Pattern NO_NAME = Pattern.compile("(?s)broadcast exchange \\(runId .*"
      + "|Listing leaf files and directories for \\d+ paths:.*|Job group for statement \\d+");
  /** Spark's default description: method, file and line, such as "count at etl.py:12". */
  private static final Pattern CALL_SITE = Pattern.compile("\\S+ at \\S.*:-?\\d+");

  /** Common key of the job's Spark jobs; a later job may have the same key. */
  final String key;
  final String id;
  /** Time of the job's first submission. */
  long submittedMs;
  /** Best description so far; null without a description. */
  private String name;
  private int rankOfName = Integer.MAX_VALUE;
  /** Pool in FAIR mode; null if the job names no pool. */
  String pool;
  SqlPlan plan;
  /** Spark jobs that may still run. */
  final Set<Integer> sparkJobs = new HashSet<>();
  /** Number of running tasks, counted in each round of offers. */
  int running;
  final Map<Integer, Node> stages = new TreeMap<>();
  /** Maps each shuffle to the stage that writes it. */
  private final Map<Integer, Integer> writers = new HashMap<>();
  /** Maps a Spark job to its last stage, if this stage writes no shuffle: jobs of a broadcast, a sample or a subquery. */
  private final Map<Integer, Integer> results = new HashMap<>();
  /** Shuffles without a parent shuffle that were separate Spark jobs, as under adaptive execution. */
  private int firstShuffles;

  Job(String key, String id, long submittedMs) {
    this.key = key;
    this.id = id;
    this.submittedMs = submittedMs;
  }

  /**
   * Offers a description as the name of the job. The description of a SQL query comes before those of its Spark jobs,
   * which Spark itself sets in part; a call site comes last.
   *
   * @param ofQuery whether a SQL query has the description, not one of its Spark jobs
   */
  void describe(String description, boolean ofQuery) {
    if (description == null || description.isEmpty() || NO_NAME.matcher(description).matches()) {
      return;
    }
    int rank = (CALL_SITE.matcher(description).matches() ? 2 : 0) + (ofQuery ? 0 : 1);
    if (rank < rankOfName) {
      rankOfName = rank;
      name = SqlPlan.cut(description, SqlPlan.LONGEST_NAME);
    }
  }

  /**
   * Adds the stages of a Spark job that has just been submitted. Called in the DAG scheduler's thread.
   *
   * <p>Spark reports the shuffles that each stage reads. It does not report that a stage waits for a broadcast, for the
   * sample of a sort or for a subquery. These are separate Spark jobs, and the driver submits the stage after they have
   * ended. So a stage without parents in its own Spark job is assumed to wait for the Spark jobs of the same Decima job that
   * have ended before, write no shuffle, and have no other child. Adaptive execution starts with
   * shuffles without a parent shuffle, which do not wait.
   *
   * @param active running Spark jobs of the DAG scheduler
   * @param execution key of the SQL execution of the Spark job; null outside of SQL
   */
  void add(ActiveJob added, scala.collection.mutable.HashMap<Object, ActiveJob> active, String execution) {
    Set<Integer> ended = new TreeSet<>();
    results.forEach((sparkJob, stage) -> {
      if (!active.contains(sparkJob)) {
        ended.add(stage);
      }
    });
    for (Node each : stages.values()) {
      ended.removeAll(each.parents);
    }
    Stage last = added.finalStage();
    walk(last, added.jobId(), execution, false, new HashMap<>());
    if (!(last instanceof ShuffleMapStage)) {
      results.put(added.jobId(), last.id());
    } else if (last.parents().isEmpty() && ++firstShuffles <= (plan == null ? 0 : plan.first)) {
      return;
    }
    for (Node each : stages.values()) {
      if (each.sparkJobs.contains(added.jobId()) && !each.over
          && each.parents.stream().noneMatch(parent -> isOpen(parent, added.jobId()))) {
        ended.stream().filter(stage -> stage < each.id).forEach(stage -> {
          each.parents.add(stage);
          each.indirect.add(stage);
        });
      }
    }
    for (Node each : stages.values()) {
      each.indirect.removeIf(parent -> isImplied(parent, each) && each.parents.remove(parent));
    }
  }

  /** Whether another parent of a stage waits for this parent. */
  private boolean isImplied(int parent, Node stage) {
    Deque<Integer> pending = new ArrayDeque<>(stage.parents);
    pending.remove(parent);
    Set<Integer> seen = new HashSet<>();
    while (!pending.isEmpty()) {
      Node above = stages.get(pending.pop());
      if (above == null || !seen.add(above.id)) {
        continue;
      }
      if (above.parents.contains(parent)) {
        return true;
      }
      pending.addAll(above.parents);
    }
    return false;
  }

  private boolean isOpen(int stage, int sparkJob) {
    Node node = stages.get(stage);
    return node != null && !node.over && node.sparkJobs.contains(sparkJob);
  }

  /**
   * Adds a stage and its ancestors, and returns its id in the job. If an earlier Spark job of this job has written
   * the same shuffle, Spark skips the stage, and the result is the id of the earlier stage.
   */
  private int walk(Stage stage, int sparkJob, String execution, boolean skipped, Map<Integer, Integer> walked) {
    if (walked.containsKey(stage.id())) {
      return walked.get(stage.id());
    }
    ShuffleMapStage map = stage instanceof ShuffleMapStage ? (ShuffleMapStage) stage : null;
    boolean over = skipped || map != null && map.isAvailable();
    Integer writer = map == null ? null : writers.get(map.shuffleDep().shuffleId());
    if (over && writer != null && !stages.containsKey(stage.id())) {
      walked.put(stage.id(), writer);
      return writer;
    }
    walked.put(stage.id(), stage.id());
    Node node = stages.computeIfAbsent(stage.id(), id -> node(stage, execution));
    node.sparkJobs.add(sparkJob);
    node.over = over;
    if (map != null) {
      writers.put(map.shuffleDep().shuffleId(), node.id);
    }
    for (Object parent : Reflect.list(stage.parents())) {
      int id = walk((Stage) parent, sparkJob, execution, over, walked);
      node.parents.add(id);
      if (id != ((Stage) parent).id()) {
        node.indirect.add(id);
      }
    }
    return node.id;
  }

  private static Node node(Stage stage, String execution) {
    Node node = new Node(stage.id(), stage.name(), stage.numTasks());
    node.execution = execution;
    node.scopes = StageInputs.scopes(stage);
    node.operators = StageInputs.operators(node.scopes, Collections.emptyMap());
    node.inputBytes = StageInputs.inputBytes(stage);
    return node;
  }

  /**
   * Called when the plan of a SQL execution is known or has changed, and when stages of the execution are new.
   *
   * @return whether the operators of any stage have changed
   */
  boolean planned(String execution, Map<String, List<String>> compiled) {
    boolean changed = false;
    for (Node each : stages.values()) {
      if (execution.equals(each.execution)) {
        List<String> operators = StageInputs.operators(each.scopes, compiled);
        changed |= !operators.equals(each.operators);
        each.operators = operators;
      }
    }
    return changed;
  }

  /** Called when a stage has tasks to run. */
  void opened(TaskSetManager set) {
    Node node = stages.computeIfAbsent(set.stageId(), id -> new Node(id, "", set.numTasks()));
    node.attempt = set.taskSet().stageAttemptId();
    node.before = Math.max(0, node.tasks - set.numTasks());
    node.over = false;
  }

  /** Called when an attempt of a stage has ended: complete, or failed and to be repeated. */
  void closed(TaskSetManager set) {
    Node node = stages.get(set.stageId());
    if (node != null && node.attempt == set.taskSet().stageAttemptId()) {
      node.before = Math.min(node.tasks, node.before + set.tasksSuccessful());
      node.over = set.tasksSuccessful() == set.numTasks();
    }
  }

  /** Called when a Spark job has ended, so that its remaining stages will not run. */
  void ended(int sparkJob) {
    sparkJobs.remove(sparkJob);
    for (Node each : stages.values()) {
      if (each.sparkJobs.remove(sparkJob) && each.sparkJobs.isEmpty()) {
        each.over = true;
      }
    }
  }

  /**
   * @param nowMs time of the question
   * @param sets current task sets by stage
   * @param plans whether to include the query's plan and the operators of stages
   */
  void write(ObjectNode out, long nowMs, Map<Integer, TaskSetManager> sets, boolean plans) {
    out.put("id", id).put("name", name).put("submitted_time_ms", (double) submittedMs);
    if (pool != null) {
      out.put("pool", pool);
    }
    if (plan == null || !plans) {
      out.putNull("plan").putArray("exchanges");
    } else {
      out.putRawValue("plan", new RawValue(plan.operatorsJson));
      out.putRawValue("exchanges", new RawValue(plan.exchangesJson));
    }
    out.put("running", running);
    ArrayNode all = out.putArray("stages");
    for (Node each : stages.values()) {
      write(each, nowMs, sets.get(each.id), all.addObject(), plans);
    }
  }

  /** Whether a task of the task set has not started. Spark's own queue removes started tasks only when it is read. */
  static boolean hasPending(TaskSetManager set) {
    int task = set.numTasks() - 1;
    while (task >= 0 && !isPending(set, task)) {   // tasks start in this order
      task--;
    }
    return task >= 0;
  }

  private static boolean isPending(TaskSetManager set, int task) {
    return set.copiesRunning()[task] == 0 && !set.successful()[task];
  }

  static int pending(TaskSetManager set) {
    int count = 0;
    for (int task = 0; task < set.numTasks(); task++) {
      count += isPending(set, task) ? 1 : 0;
    }
    return count;
  }

  /** Returns the sum of the elapsed times of running tasks; copies of a task count once, from the start of the first copy. */
  private static long runningMs(TaskSetManager set, long nowMs) {
    Map<Integer, Long> launched = new HashMap<>();
    for (Object each : Reflect.list(set.runningTasksSet())) {
      TaskInfo task = set.taskInfos().get(each).get();
      if (!set.successful()[task.index()]) {
        launched.merge(task.index(), task.launchTime(), Math::min);
      }
    }
    return launched.values().stream().mapToLong(launch -> Math.max(0, nowMs - launch)).sum();
  }

  /** A task counts as done as soon as its executor is free, even if its result has not arrived. */
  private static void write(Node node, long nowMs, TaskSetManager set, ObjectNode out, boolean plans) {
    int succeeded = Math.min(node.tasks, node.before + (set == null ? 0 : set.tasksSuccessful()));
    boolean done = set == null ? node.over : succeeded == node.tasks;
    int left = done ? 0 : node.tasks - succeeded;
    int pending = set == null ? left : Math.min(left, pending(set));
    int running = set == null ? 0 : Math.min(set.runningTasks(), left - pending);   // copies of a task count once
    boolean open = set != null && !set.isZombie();
    out.put("id", node.id).put("attempt", node.attempt).put("name", SqlPlan.cut(node.name, SqlPlan.LONGEST_NAME))
        .put("state", done ? "done" : open ? "ready" : "waiting")
        .put("tasks", node.tasks).put("done", node.tasks - running - pending).put("running", running)
        .put("pending", pending);
    if (node.timed > 0) {
      out.put("mean_ms", node.totalMs / node.timed);
    } else {
      out.putNull("mean_ms");
    }
    out.put("running_ms", (double) (set == null ? 0 : runningMs(set, nowMs)));
    ArrayNode parents = out.putArray("parents");
    node.parents.forEach(parents::add);
    if (plans && !node.operators.isEmpty()) {
      node.operators.forEach(out.putArray("operators")::add);
    }
    if (node.inputBytes != null) {
      out.put("input_bytes", node.inputBytes);
    }
  }
}
