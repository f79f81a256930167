package decima.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Changes the number of executors of a running application on a standalone cluster or Kubernetes to the policy's target.
 *
 * <p>More executors: the mover raises the application's limit at Spark's master, which starts executors on free slots. Fewer: it
 * lowers the limit, which stops no executor. It marks executors beyond the limit, so that they get no further
 * tasks, finish their running tasks, and are killed when they are idle. The external shuffle service keeps their
 * output, so no task fails or runs twice. Spark's own decommissioning, and killing busy executors, would repeat tasks.
 *
 * <p>On Kubernetes there is no external shuffle service: marked executors also wait until no incomplete job can read their
 * map outputs. The last executor leaves only between two jobs, so that both jobs complete.
 *
 * <p>Everything except calls of the listener runs in a separate thread.
 */
final class Mover extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");
  private static final int SWEEP_MS = 100;
  private static final int NONE = -1;
  private static final int ALL = Integer.MAX_VALUE;
  private static final String MOST = "spark.dynamicAllocation.maxExecutors";
  /** Executors whose first task starts later than this after registration waited for work; that is not moving delay. */
  private static final long MOST_IDLE_MS = 2_000;
  /** Executors that register later than this after the request waited for a slot of another application. */
  private static final long LONGEST_MOVE_MS = 60_000;
  private static final int SAMPLES = 15;

  private final SparkContext context;
  private final Settings settings;
  private final TaskSchedulerImpl scheduler;
  private final CoarseGrainedSchedulerBackend backend;
  private final PolicyClient client;
  private final JobGraph jobs;
  private final Trouble trouble;
  /** Map outputs of executors on Kubernetes; otherwise null. */
  private final Outputs outputs;
  private final ScheduledThreadPoolExecutor thread = new ScheduledThreadPoolExecutor(1, task -> {
    Thread made = new Thread(task, "decima-mover");
    made.setDaemon(true);
    return made;
  });
  /** Target number of executors; {@link #NONE} before the policy's first answer. */
  private int target = NONE;
  private long seenMs = System.currentTimeMillis();
  private final Set<String> marked = ConcurrentHashMap.newKeySet();
  // measurement of the moving delay
  /** Request times of executors that have not registered, in ascending order. */
  private final Deque<Long> requests = new ArrayDeque<>();
  /** Maps an executor without a first task to its times of request and registration. */
  private final Map<String, long[]> joined = new HashMap<>();
  private final Deque<Long> delays = new ArrayDeque<>();

  Mover(SparkContext context, Settings settings, PolicyClient client, JobGraph jobs, Trouble trouble) {
    this.trouble = trouble;
    this.context = context;
    this.settings = settings;
    this.client = client;
    this.jobs = jobs;
    outputs = onKubernetes(context.conf()) ? new Outputs(jobs) : null;
    scheduler = (TaskSchedulerImpl) context.taskScheduler();
    backend = (CoarseGrainedSchedulerBackend) context.schedulerBackend();
  }

  /**
   * Configures the application to start without executors. This requires Spark's dynamic allocation, which is enabled but
   * makes no decisions.
   *
   * @return reason why executors cannot be moved; null if they can
   */
  static String prepare(SparkConf conf) {
    boolean kubernetes = onKubernetes(conf);
    if (!kubernetes && !conf.get("spark.master", "").startsWith("spark://")) {
      return "the cluster is neither a standalone one nor Kubernetes";
    }
    if (!kubernetes && !conf.getBoolean("spark.shuffle.service.enabled", false)) {
      return "spark.shuffle.service.enabled is not true: what executors have written would go with them";
    }
    if (!kubernetes && conf.contains("spark.cores.max")) {
      return "spark.cores.max is set, beyond which Spark's master gives nothing";
    }
    if (kubernetes) {
      conf.set("spark.dynamicAllocation.shuffleTracking.enabled", "true")
          .setIfMissing(MOST, conf.get("spark.executor.instances", "2"));
    }
    String never = "100000000s";
    conf.set("spark.dynamicAllocation.enabled", "true").set("spark.dynamicAllocation.minExecutors", "0")
        .set("spark.dynamicAllocation.initialExecutors", "0").remove("spark.executor.instances")
        .set("spark.dynamicAllocation.schedulerBacklogTimeout", never)
        .set("spark.dynamicAllocation.sustainedSchedulerBacklogTimeout", never)
        // On Kubernetes this is also the age at which surplus pods that have not started are deleted.
        .set("spark.dynamicAllocation.executorIdleTimeout", kubernetes ? "1s" : never)
        .set("spark.dynamicAllocation.cachedExecutorIdleTimeout", never);
    // By default the driver notices a killed executor 5 s late.
    conf.setIfMissing("spark.standalone.executorRemoveDelayOnDisconnection", "50ms");
    return null;
  }

  static boolean onKubernetes(SparkConf conf) {
    return conf.get("spark.master", "").startsWith("k8s://");
  }

  /** Requests all executors. On Kubernetes, which has no upper bound, the application's maximum is the bound. */
  static void requestAll(SparkContext context) {
    boolean bounded = onKubernetes(context.conf());
    context.requestTotalExecutors(bounded ? context.conf().getInt(MOST, 2) : ALL, 0, Reflect.emptyMap());
  }

  /** Stops Spark's dynamic allocation, which would remove idle executors. */
  static void stopAllocation(SparkContext context) {
    if (onKubernetes(context.conf()) && context.executorAllocationManager().isDefined()) {
      context.executorAllocationManager().get().stop();
    }
  }

  void start() {
    thread.scheduleWithFixedDelay(guarded(this::sweep), SWEEP_MS, SWEEP_MS, TimeUnit.MILLISECONDS);
  }

  void close() {
    thread.shutdownNow();
    try {
      thread.awaitTermination(1, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Sets the target of an answer. May be called from any thread. */
  void obey(Answer answer) {
    run(() -> {
      if (answer.executors != NONE) {
        target(answer.executors);
      }
    });
  }

  /** Returns the median time from the request of an executor to its first task; null before the first. */
  synchronized Double moveMs() {
    if (delays.isEmpty()) {
      return null;
    }
    long[] sorted = delays.stream().mapToLong(Long::longValue).sorted().toArray();
    int half = sorted.length / 2;
    return sorted.length % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2.0;
  }

  // ---- in the mover's own thread

  private void target(int executors) throws ReflectiveOperationException {
    if (executors != target) {
      target = executors;
      expect(executors == ALL ? 0 : executors - active().size());
      if (executors == ALL) {
        requestAll(context);
      } else {
        context.requestTotalExecutors(executors, 0, Reflect.emptyMap());
      }
      LOG.info("executors: {}", executors == ALL ? "all there are" : executors);
    }
    enforce();
  }

  /** Without a policy the number of executors is constant, but an application must not wait for a policy forever. */
  private void sweep() throws ReflectiveOperationException {
    long now = System.currentTimeMillis();
    if (client.up && !client.shadow && target != NONE) {
      seenMs = now;
    } else if (target <= 0 && (client.shadow || now - seenMs >= settings.startMs)) {
      LOG.warn("no policy says how many executors to have: all there are");
      target(ALL);
    }
    release();
    enforce();
  }

  /** Marks executors beyond the target: first executors without needed outputs, then idle ones, then the newest. */
  private void enforce() throws ReflectiveOperationException {
    List<String> active = active();
    int keep = target == 0 && outputs != null && !jobs.isEmpty() ? 1 : target;
    if (target == NONE || active.size() <= keep) {
      return;
    }
    active.sort(Comparator.comparing((String id) -> outputs != null && outputs.holds(id))
        .thenComparing(scheduler::isExecutorBusy).thenComparing(id -> -Long.parseLong(id)));
    List<String> surplus = new ArrayList<>(active.subList(0, active.size() - keep));
    Reflect.decommission(backend, surplus, "the policy gives it to another application");
    marked.addAll(surplus);
    release();
  }

  /** Kills idle marked executors; Spark checks again, under its own lock, that they are idle. */
  private void release() throws ReflectiveOperationException {
    List<String> idle = new ArrayList<>(marked);
    idle.removeIf(id -> outputs == null ? scheduler.isExecutorBusy(id)
        : !outputs.mayGo(id, scheduler.isExecutorBusy(id)));
    if (!idle.isEmpty()) {
      Reflect.killIdle(backend, idle);
    }
  }

  private List<String> active() throws ReflectiveOperationException {
    List<String> out = new ArrayList<>();
    for (Object id : Reflect.list(Reflect.get(backend, "getExecutorIds"))) {
      if (backend.isExecutorActive((String) id)) {
        out.add((String) id);
      }
    }
    return out;
  }

  // ---- called by the listener

  @Override public void onExecutorAdded(SparkListenerExecutorAdded event) {
    guarded(() -> {
      synchronized (this) {
        Long asked = requests.poll();
        if (asked != null) {
          joined.put(event.executorId(), new long[] {asked, event.time()});
        }
      }
      run(this::enforce);   // the executor may have been starting when the target fell
    }).run();
  }

  @Override public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    guarded(() -> {
      marked.remove(event.executorId());
      if (outputs != null) {
        outputs.removed(event.executorId());
      }
      synchronized (this) {
        joined.remove(event.executorId());
      }
    }).run();
  }

  @Override public void onTaskStart(SparkListenerTaskStart event) {
    guarded(() -> started(event)).run();
  }

  private synchronized void started(SparkListenerTaskStart event) {
    long[] times = joined.remove(event.taskInfo().executorId());
    long launched = event.taskInfo().launchTime();
    if (times != null && launched - times[1] <= MOST_IDLE_MS && launched - times[0] <= LONGEST_MOVE_MS) {
      delays.add(launched - times[0]);
      if (delays.size() > SAMPLES) {
        delays.remove();
      }
    }
  }

  @Override public void onTaskEnd(SparkListenerTaskEnd event) {
    guarded(() -> {
      if (outputs != null && event.taskInfo() != null) {
        outputs.taskEnded(event.taskInfo().executorId(), event.stageId(), event.taskType());
      }
      if (event.taskInfo() != null && marked.contains(event.taskInfo().executorId())) {
        run(this::release);
      }
    }).run();
  }

  @Override public void onJobEnd(SparkListenerJobEnd event) {
    jobEnded();
  }

  @Override public void onOtherEvent(SparkListenerEvent event) {
    jobEnded();
  }

  /** Called between two jobs, when the last executor of an application on Kubernetes may leave. */
  private void jobEnded() {
    guarded(() -> {
      if (outputs != null) {
        run(this::enforce);
      }
    }).run();
  }

  /** Updates the number of requested executors; earlier requests keep their times. */
  private synchronized void expect(int missing) {
    while (requests.size() > Math.max(0, missing)) {
      requests.removeLast();
    }
    while (requests.size() < missing) {
      requests.add(System.currentTimeMillis());
    }
  }

  private interface Work {
    void run() throws ReflectiveOperationException;
  }

  private void run(Work work) {
    try {
      thread.execute(guarded(work));
    } catch (RejectedExecutionException e) {
      LOG.debug("Spark stops", e);
    }
  }

  private Runnable guarded(Work work) {
    return () -> {
      try {
        work.run();
      } catch (Throwable e) {   // an exception, or an Error, would end the timer
        if (!thread.isShutdown()) {
          trouble.warn("executors could not be moved", e);
        }
      }
    };
  }
}
