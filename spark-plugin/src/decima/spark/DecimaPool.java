package decima.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.Schedulable;
import org.apache.spark.scheduler.SchedulingMode;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSet;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.util.SystemClock;
import scala.Enumeration;
import scala.Option;
import scala.collection.mutable.ArrayBuffer;

/**
 * A pool of Spark's FAIR scheduler that sorts task sets in the policy's order, and enforces the policy's limits. Spark requests
 * the sorted task sets whenever cores are free. All methods run under TaskSchedulerImpl's lock.
 *
 * <p>Exact limits: Spark reads the sorted queue once in a round of offers, and lets each task set in turn fill all
 * free cores. So the queue alone could only admit a task set or exclude it. Therefore the queue contains
 * {@link Turn}s between task sets: dummy task sets that accept no offer and mark the start of the next turn. Spark reports each launched
 * task to the pool. A task set at its limit is marked as a zombie, so that Spark makes it no further offers, until
 * its turn ends. This is before Spark releases the lock, so no other code sees the mark.
 */
public final class DecimaPool extends Pool {
  /** Dummy task set before task set number {@code place} of the queue, or after the last one. */
  private final class Turn extends TaskSetManager {
    private final int place;

    Turn(int place, TaskSet empty) {
      super(scheduler, empty, 1, Option.empty(), new SystemClock());
      this.place = place;
      parent_$eq(DecimaPool.this);
    }

    /** The first method of a task set that Spark calls in the turn. */
    @Override public boolean isBarrier() {
      beginTurn(place);
      return false;
    }

    @Override public boolean isSchedulable() {
      return true;
    }

    @Override public Enumeration.Value[] myLocalityLevels() {
      return new Enumeration.Value[0];
    }

    @Override public void executorAdded() { }

    @Override public int runningTasks() {
      return 0;
    }
  }

  /** One of Spark's pools, which keeps its place: Spark's FAIR algorithm sorts pools, and task sets within a pool. */
  private final class Inner extends Pool {
    Inner(String name, Enumeration.Value mode, int minShare, int weight) {
      super(name, mode, minShare, weight);
    }

    @Override public void addSchedulable(Schedulable added) {
      super.addSchedulable(added);
      opened(added);
    }

    @Override public void removeSchedulable(Schedulable removed) {
      super.removeSchedulable(removed);
      closed(removed);
    }
  }

  private static final String DEFAULT = "default";
  /** Name of a pool that no program would choose. */
  private static final String ROOT = "decima: all pools";

  private final SparkContext context;
  private final TaskSchedulerImpl scheduler;
  private final boolean allPools;
  /** Whether this pool contains Spark's own pools. */
  private final boolean nested;
  /** Pools of the application's fairscheduler.xml. */
  private final List<Pool> declared = new ArrayList<>();
  private final JobGraph jobs;
  private final Executors executors;
  private final List<Turn> turns = new ArrayList<>();
  private Advisor advisor;
  // the current round of offers
  private Answer answer;
  private List<TaskSetManager> queue = new ArrayList<>();
  private TaskSetManager current;
  private TaskSetManager blocked;

  DecimaPool(SparkContext context, TaskSchedulerImpl scheduler, Settings settings, JobGraph jobs, Executors executors) {
    this(context, scheduler, settings, jobs, executors, own(scheduler, settings));
  }

  /** @param own the pool that this pool replaces: the root of all pools, or the default pool */
  private DecimaPool(SparkContext context, TaskSchedulerImpl scheduler, Settings settings, JobGraph jobs, Executors executors,
      Pool own) {
    super(own.name().isEmpty() ? ROOT : own.name(), own.schedulingMode(), own.minShare(), Math.max(1, own.weight()));
    this.context = context;
    this.scheduler = scheduler;
    this.allPools = settings.allPools;
    this.nested = own.name().isEmpty();
    this.jobs = jobs;
    this.executors = executors;
  }

  /**
   * Returns the pool with Spark's own order. If the application uses FAIR mode, this is Spark's pool, with the pools of its
   * fairscheduler.xml; otherwise all jobs are in one pool.
   */
  private static Pool own(TaskSchedulerImpl scheduler, Settings settings) {
    Pool root = scheduler.rootPool();
    if (settings.ownPools) {
      return settings.allPools ? root : (Pool) root.getSchedulableByName(DEFAULT);
    }
    return new Pool(DEFAULT, SchedulingMode.withName(settings.fallback), 0, 1);
  }

  /** Replaces Spark's default pool, or all pools, before the first job. */
  void install(Advisor asked) {
    advisor = asked;
    Pool root = scheduler.rootPool();
    if (!root.schedulingMode().equals(SchedulingMode.FAIR())) {
      throw new IllegalStateException("spark.scheduler.mode is not FAIR");
    }
    synchronized (scheduler) {
      for (Schedulable each : root.schedulableQueue().toArray(new Schedulable[0])) {
        if (allPools || each.name().equals(DEFAULT)) {
          root.removeSchedulable(each);
        }
        if (nested) {
          Pool pool = (Pool) each;
          if (!pool.name().equals(DEFAULT) || pool.weight() != 1 || pool.minShare() != 0) {
            declared.add(pool);
          }
          super.addSchedulable(new Inner(pool.name(), pool.schedulingMode(), pool.minShare(), pool.weight()));
        }
      }
      root.addSchedulable(this);
    }
  }

  /** Adds the pools of the application's file, if it has any, to the first message. */
  void writePools(ObjectNode hello) {
    if (declared.isEmpty()) {
      return;
    }
    ArrayNode all = hello.putArray("pools");
    for (Pool each : declared) {
      all.addObject().put("name", SqlPlan.cut(each.name(), SqlPlan.LONGEST_NAME))
          .put("weight", Math.max(1, each.weight())).put("min_share", Math.max(0, each.minShare()));
    }
  }

  // ---- methods that Spark calls

  /** Also receives jobs that name another pool. As in Spark, a pool that is not in the file is created when a job first names it. */
  @Override public Schedulable getSchedulableByName(String name) {
    Schedulable found = super.getSchedulableByName(name);
    if (found == null && nested) {
      found = new Inner(name, SchedulingMode.FIFO(), 0, 1);
      super.addSchedulable(found);
    }
    return found == null && allPools ? this : found;
  }

  @Override public void addSchedulable(Schedulable added) {
    super.addSchedulable(added);
    opened(added);
  }

  @Override public void removeSchedulable(Schedulable removed) {
    super.removeSchedulable(removed);
    closed(removed);
  }

  /** Called in the DAG scheduler's thread when a stage has tasks to run. */
  private void opened(Schedulable added) {
    if (added instanceof TaskSetManager) {
      try {
        jobs.stageOpened(context, (TaskSetManager) added);
      } catch (Throwable e) {
        advisor.trouble.warn("stage passed over", e);
      }
      advisor.changed();
    }
  }

  private void closed(Schedulable removed) {
    if (removed == blocked) {   // Spark has aborted it in its turn
      blocked = null;
    }
    if (removed instanceof TaskSetManager) {
      try {
        jobs.stageClosed((TaskSetManager) removed);
      } catch (Throwable e) {
        advisor.trouble.warn("end of a stage passed over", e);
      }
      advisor.changed();
    }
  }

  /** Called in a round for each launched task. */
  @Override public void increaseRunningTasks(int tasks) {
    super.increaseRunningTasks(tasks);
    if (current != null) {
      try {
        launched(tasks);
      } catch (Throwable e) {
        advisor.trouble.warn("limit passed over", e);
      }
    }
  }

  private void launched(int tasks) {
    Job job = jobs.of(current);
    if (job != null) {
      job.running += tasks;
    }
    if (allowance(current) <= 0) {
      block();
    }
    if (!Job.hasPending(current)) {   // its last task has been launched
      advisor.changed();
      advisor.revive();
    }
  }

  @Override public ArrayBuffer<TaskSetManager> getSortedTaskSetQueue() {
    endTurn();
    queue = new ArrayList<>();
    ArrayBuffer<TaskSetManager> usual = super.getSortedTaskSetQueue();
    try {
      if (usual.size() == 0) {
        advisor.idle();
        return usual;
      }
      if (runningTasks() < executors.slots()) {
        advisor.spare();
      }
      switch (advisor.round()) {
        case HOLD: return new ArrayBuffer<>();
        case OBEY: return arrange(usual, advisor.answer());
        default: return usual;
      }
    } catch (Throwable e) {
      advisor.trouble.warn("round left to Spark", e);
      advisor.changed();
      endTurn();
      return usual;
    }
  }

  // ---- a round of offers in the order of the policy's answer

  private ArrayBuffer<TaskSetManager> arrange(ArrayBuffer<TaskSetManager> usual, Answer by)
      throws ReflectiveOperationException {
    answer = by;
    jobs.count(taskSets());
    Map<Integer, TaskSetManager> waiting = new LinkedHashMap<>();
    for (Object each : Reflect.list(usual)) {
      waiting.put(((TaskSetManager) each).stageId(), (TaskSetManager) each);
    }
    for (TaskSetManager each : new ArrayList<>(waiting.values())) {
      if (wantsCopies(each)) {   // first, as in Spark for the oldest job: the stage waits for its slowest task
        queue.add(waiting.remove(each.stageId()));
      }
    }
    for (int stage : by.stages()) {
      TaskSetManager named = waiting.remove(stage);
      if (named != null) {
        queue.add(named);
      }
    }
    if (!by.hold) {
      queue.addAll(waiting.values());
    }
    // Limits only fall in a round. Spark aborts a task set whose tasks cannot run on any executor; a mark would hide this.
    queue.removeIf(each -> allowance(each) <= 0);
    if (runningTasks() == 0 && executors.count() > 0 && queue.isEmpty()) {
      return advisor.stalled() ? usual : new ArrayBuffer<>();
    }
    advisor.moving();
    List<TaskSetManager> out = new ArrayList<>();
    for (int i = 0; i < queue.size(); i++) {
      out.add(turn(i));
      out.add(queue.get(i));
    }
    out.add(turn(queue.size()));
    return Reflect.buffer(out);
  }

  /** Whether Spark requests speculative copies of running tasks of a stage that has launched all its tasks. */
  private static boolean wantsCopies(TaskSetManager set) {
    try {
      return !set.speculatableTasks().isEmpty() && !Job.hasPending(set);
    } catch (LinkageError e) {   // this version of Spark has other names
      return false;
    }
  }

  /** Returns the number of tasks of the stage that may be launched now. */
  private int allowance(TaskSetManager set) {
    Job job = jobs.of(set);
    if (job == null || set.isBarrier() || wantsCopies(set)) {
      return Answer.ALL;   // a barrier stage starts all its tasks or none; Spark itself limits copies
    }
    return Math.min(answer.slots(set.stageId()) - set.runningTasks(), answer.limit(job.id) - job.running);
  }

  /** Number of tasks that the last answer holds back: of stages at a limit and, with "hold", of stages that it does not name. */
  int heldTasks() {
    synchronized (scheduler) {
      int held = 0;
      for (TaskSetManager each : advisor.answer() == null || answer == null ? new ArrayList<TaskSetManager>() : taskSets()) {
        boolean runs = allowance(each) > 0 && (!answer.hold || answer.names(each.stageId()));
        held += each.isZombie() || runs ? 0 : Job.pending(each);
      }
      return held;
    }
  }

  private void beginTurn(int place) {
    endTurn();
    if (place < queue.size()) {
      current = queue.get(place);
      try {
        if (allowance(current) <= 0) {
          block();
        }
      } catch (Throwable e) {
        advisor.trouble.warn("limit passed over", e);
      }
    }
  }

  private void block() {
    if (blocked == null && !current.isZombie()) {
      blocked = current;
      current.isZombie_$eq(true);
    }
  }

  private void endTurn() {
    if (blocked != null) {
      blocked.isZombie_$eq(false);
      blocked = null;
    }
    current = null;
  }

  private Turn turn(int place) throws ReflectiveOperationException {
    while (turns.size() <= place) {
      turns.add(new Turn(turns.size(), Reflect.taskSet(-1, 0, 1)));
    }
    return turns.get(place);
  }

  private List<TaskSetManager> taskSets() {
    List<TaskSetManager> out = new ArrayList<>();
    addTaskSets(this, out);
    return out;
  }

  private static void addTaskSets(Pool pool, List<TaskSetManager> out) {
    for (Schedulable each : pool.schedulableQueue()) {
      if (each instanceof TaskSetManager) {
        out.add((TaskSetManager) each);
      } else {
        addTaskSets((Pool) each, out);
      }
    }
  }

  // ---- questions

  /** Returns the question with this number. Called under the scheduler's lock and outside of any turn. */
  ObjectNode state(long number, boolean plans, Double moveMs) {
    List<TaskSetManager> sets = taskSets();
    Map<Integer, TaskSetManager> latest = new HashMap<>();
    for (TaskSetManager each : sets) {
      if (each.isZombie()) {
        latest.putIfAbsent(each.stageId(), each);
      } else {
        latest.put(each.stageId(), each);
      }
    }
    ObjectNode out = JsonNodeFactory.instance.objectNode();
    long nowMs = System.currentTimeMillis();
    out.put("type", "state").put("seq", number).put("time_ms", (double) nowMs);
    out.put("move_ms", moveMs);
    ArrayNode all = out.putArray("executors");
    jobs.count(sets);
    executors.write(all, scheduler, jobs.write(out.putArray("jobs"), nowMs, latest, plans));
    return out;
  }
}
