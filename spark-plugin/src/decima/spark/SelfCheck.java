package decima.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.DAGScheduler;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.SchedulingMode;
import org.apache.spark.scheduler.Task;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSet;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.apache.spark.util.SystemClock;
import org.objenesis.ObjenesisStd;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.helpers.NOPLogger;
import scala.Option;

/**
 * Checks at the start that order and limits hold with this Spark's own classes. The pool is installed in a second
 * {@code TaskSchedulerImpl}, which has no backend and is thrown away. It gets three fake task sets, and offers of cores that
 * no executor has. Spark's own code sorts, offers and launches as for an application, but no task leaves the driver, and
 * neither the listener bus nor the log sees anything.
 */
final class SelfCheck {
  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");
  private static final int SETS = 3;
  private static final int TASKS = 3;
  private static final String EXECUTOR = "decima-self-check";

  /** Spark's scheduler without a DAG scheduler to tell of executors. */
  private static final class Aside extends TaskSchedulerImpl {
    Aside(SparkContext context) {
      super(context);
    }

    @Override public Logger log() {
      return NOPLogger.NOP_LOGGER;
    }

    @Override public void executorAdded(String id, String host) { }
  }

  /** Hears of launched tasks. Its constructor would start threads, so it is made without. */
  private static final class Launches extends DAGScheduler {
    List<Task<?>> tasks;

    Launches() {
      super(null);
    }

    @Override public void taskStarted(Task<?> task, TaskInfo info) {
      tasks.add(task);
    }
  }

  private static final class Fake extends TaskSetManager {
    Fake(TaskSchedulerImpl scheduler, TaskSet set) {
      super(scheduler, set, 1, Option.empty(), new SystemClock());
    }

    @Override public Logger log() {
      return NOPLogger.NOP_LOGGER;
    }
  }

  /** Obeys a given answer, or leaves rounds to Spark. */
  private static final class Script extends Advisor {
    private Answer answer;

    Script(Settings settings, TaskSchedulerImpl scheduler, Trouble trouble) {
      super(settings, scheduler, null, null, null, null, trouble);
    }

    @Override Round round() {
      return answer == null ? Round.USUAL : Round.OBEY;
    }

    @Override Answer answer() {
      return answer;
    }

    @Override void idle() { }

    @Override void revive() { }
  }

  /** Keeps the first error of the pool, which would otherwise log it and go on. */
  private static final class First extends Trouble {
    private Throwable error;

    @Override synchronized void warn(String what, Throwable why) {
      error = error == null ? why : error;
    }
  }

  private static final class Failure extends Exception {
    private static final long serialVersionUID = 1;

    Failure(String what) {
      super(what);
    }
  }

  private final Settings settings;
  private final Aside scheduler;
  private final First trouble = new First();
  private final Script script;
  private final DecimaPool pool;
  private final List<Task<?>> launched = new ArrayList<>();
  private final List<Fake> sets = new ArrayList<>();

  private SelfCheck(SparkContext context, Settings settings) {
    this.settings = settings;
    scheduler = new Aside(context);
    Launches launches = new ObjenesisStd().newInstance(Launches.class);
    launches.tasks = launched;
    scheduler.setDAGScheduler(launches);
    script = new Script(settings, scheduler, trouble);
    Executors executors = new Executors();
    executors.added(EXECUTOR, SETS * TASKS);
    pool = new DecimaPool(context, withDefaultPool(scheduler), settings, new JobGraph(), executors);
  }

  /**
   * To be called in FAIR mode, before the first job.
   *
   * @return what does not hold with this Spark; null if all does
   */
  static String failure(SparkContext context, Settings settings) {
    long start = System.nanoTime();
    try {
      if (settings.executors) {
        checkMoves();
      }
      // Offers of other resources than cores differ between versions.
      if (context.conf().getAllWithPrefix("spark.task.resource.").length == 0) {
        SelfCheck check = new SelfCheck(context, settings);
        try {
          check.run();
        } finally {
          Reflect.stop(check.scheduler);
        }
      }
      LOG.debug("self-check in {} us", (System.nanoTime() - start) / 1000);
      return null;
    } catch (Throwable e) {
      Throwable cause = e instanceof InvocationTargetException && e.getCause() != null ? e.getCause() : e;
      LOG.debug("self-check", cause);
      return cause instanceof Failure ? cause.getMessage() : cause.toString();
    }
  }

  /** Looks for the methods by which {@link Mover} moves executors. */
  private static void checkMoves() {
    Reflect.method(CoarseGrainedSchedulerBackend.class, "decommissionExecutors", 3);
    Reflect.method(CoarseGrainedSchedulerBackend.class, "killExecutors", 4);
    Reflect.method(CoarseGrainedSchedulerBackend.class, "getExecutorIds", 0);
  }

  private static TaskSchedulerImpl withDefaultPool(TaskSchedulerImpl scheduler) {
    scheduler.rootPool().addSchedulable(new Pool("default", SchedulingMode.FIFO(), 0, 1));
    return scheduler;
  }

  private void run() throws Exception {
    pool.install(script);
    for (int id = 1; id <= SETS; id++) {
      Fake set = new Fake(scheduler, Reflect.taskSet(id, id, TASKS));
      expect("ids of stage and job", id + " " + id, set.stageId() + " " + set.priority());
      sets.add(set);
      scheduler.rootPool().getSchedulableByName("default").addSchedulable(set);
    }
    obey(false, 3, 1, 2);
    expect("order and limits of stages 3 (2 slots), 1 (limit 1) and 2 with 5 cores", Arrays.asList(3, 3, 1, 2, 2), offer(5));
    expect("held tasks", 3, pool.heldTasks());
    expect("running tasks in a question", Arrays.asList(1, 2, 2), running());
    obey(true, 1);
    expect("stages held back with 1 core", Collections.emptyList(), offer(1));
    script.answer = null;
    expect("Spark's own order with 5 cores", Arrays.asList(1, 1, 2, 3), offer(5));
    for (Fake each : sets) {
      pool.removeSchedulable(each);
    }
  }

  /** Obeys an answer with this order of stages, with 2 slots for stage 3 and a limit of 1 for job 1. */
  private void obey(boolean hold, int... stages) {
    ObjectNode answer = JsonNodeFactory.instance.objectNode().put("type", "answer").put("seq", 1)
        .put("rest", hold ? "hold" : "fill");
    answer.putObject("limits").put("job-1", 1);
    ArrayNode all = answer.putArray("stages");
    for (int stage : stages) {
      all.addObject().put("id", stage).put("slots", stage == 3 ? 2 : TASKS);
    }
    script.answer = new Answer(answer, 1);
  }

  /** Offers cores for this number of tasks; returns the stages of launched tasks in order. */
  private List<Integer> offer(int tasks) throws Exception {
    launched.clear();
    Reflect.offer(scheduler, EXECUTOR, tasks, settings.cpusPerTask);
    List<Integer> stages = new ArrayList<>();
    for (Task<?> task : launched) {
      for (Fake each : sets) {
        if (Arrays.asList(each.tasks()).contains(task)) {
          stages.add(each.stageId());
        }
      }
    }
    for (Fake each : sets) {
      expect("end of the mark of stage " + each.stageId(), false, each.isZombie());
    }
    return stages;
  }

  private List<Integer> running() {
    List<Integer> out = new ArrayList<>();
    synchronized (scheduler) {
      for (JsonNode job : pool.state(1, false, null).path("jobs")) {
        out.add(job.path("running").asInt(-1));
      }
    }
    return out;
  }

  private void expect(String what, Object expected, Object found) throws Exception {
    if (trouble.error != null) {
      throw new InvocationTargetException(trouble.error);
    }
    if (!expected.equals(found)) {
      throw new Failure(what + ": " + found + " instead of " + expected);
    }
  }
}
