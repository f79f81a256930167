package decima.spark;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lets an external policy schedule an unmodified Spark:
 * <pre>
 *   spark.jars            /path/decima-spark.jar
 *   spark.plugins         decima.spark.DecimaPlugin
 *   spark.decima.address  127.0.0.1:7733
 * </pre>
 * Spark calls {@code init} before it creates its task scheduler, and {@code registerMetrics} after the task scheduler has
 * started and before any job. So {@code init} can choose FAIR mode, the only mode with pools, and {@code registerMetrics} can
 * install a pool. After an error in either method, the application runs as without the plugin.
 */
public final class DecimaPlugin implements SparkPlugin {
  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");
  /** Interval of checks for jobs that have ended unheard. */
  private static final int SWEEP_MS = 2_000;

  @Override public DriverPlugin driverPlugin() {
    return new Driver();
  }

  @Override public ExecutorPlugin executorPlugin() {
    return null;
  }

  /** The driver's part of the plugin. */
  public static final class Driver implements DriverPlugin {
    private final JobGraph jobs = new JobGraph();
    private final Executors executors = new Executors();
    private final Trouble trouble = new Trouble();
    private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1, task -> {
      Thread thread = new Thread(task, "decima-clock");
      thread.setDaemon(true);
      return thread;
    });
    private SparkContext context;
    private Settings settings;
    private Watcher watcher;
    private PolicyClient client;
    private Mover mover;
    private DecimaPool installed;
    private boolean moves;
    private volatile Advisor advisor;

    @Override public Map<String, String> init(SparkContext sc, PluginContext plugin) {
      try {
        Settings read = new Settings(sc.conf());
        if (read.addresses.length == 0) {
          LOG.warn("spark.decima.address is not set: Spark schedules as usual");
          return Collections.emptyMap();
        }
        clock.setRemoveOnCancelPolicy(true);
        sc.conf().set("spark.scheduler.mode", "FAIR");
        watcher = new Watcher(jobs, executors, read.cpusPerTask, this::changed, trouble);
        sc.listenerBus().addToQueue(watcher, "decima");   // a separate queue, since other listeners may be slow
        if (read.executors) {
          String why = Mover.prepare(sc.conf());
          moves = why == null;
          if (moves && Mover.onKubernetes(sc.conf())) {
            executors.awaitEndOfPods();
          }
          if (!moves) {
            LOG.warn("the policy cannot move executors: {}", why);
          }
        }
        context = sc;
        settings = read;
      } catch (Throwable e) {
        LOG.warn("not installed, Spark schedules as usual: {}", e.toString());
      }
      return Collections.emptyMap();
    }

    @Override public void registerMetrics(String application, PluginContext plugin) {
      if (settings == null) {
        return;
      }
      try {
        TaskSchedulerImpl scheduler = (TaskSchedulerImpl) context.taskScheduler();
        String failure = SelfCheck.failure(context, settings);
        if (failure != null) {
          leave("the self-check failed with Spark " + context.version() + ": " + failure);
          return;
        }
        DecimaPool pool = new DecimaPool(context, scheduler, settings, jobs, executors);
        installed = pool;
        client = new PolicyClient(settings, token -> hello(application, token), this::policyChanged, clock);
        Mover moving = moves ? new Mover(context, settings, client, jobs, trouble) : null;
        Advisor made = new Advisor(settings, scheduler, client, clock,
            (number, plans) -> pool.state(number, plans, moving == null ? null : moving.moveMs()),
            answer -> {
              if (moving != null) {
                moving.obey(answer);
              }
            }, trouble);
        pool.install(made);
        advisor = made;
        register(plugin.metricRegistry(), pool);
        clock.scheduleWithFixedDelay(this::sweep, SWEEP_MS, SWEEP_MS, TimeUnit.MILLISECONDS);
        client.start();
        if (moving != null) {
          Mover.stopAllocation(context);
          mover = moving;
          context.listenerBus().addToQueue(mover, "decima");
          mover.start();
          clock.scheduleWithFixedDelay(() -> made.beat(settings.heartbeatMs), settings.heartbeatMs,
              settings.heartbeatMs / 4 + 1, TimeUnit.MILLISECONDS);
        }
      } catch (Throwable e) {
        leave(e.toString());
      }
    }

    /** Leaves the application to Spark's own scheduler. */
    private void leave(String why) {
      LOG.warn("not installed, Spark schedules as usual: {}", why);
      try {
        context.listenerBus().removeListener(watcher);
        if (moves) {   // the application has no executors, and no other code would request any
          Mover.stopAllocation(context);
          Mover.requestAll(context);
        }
        if (!settings.fair && advisor == null) {
          Reflect.restoreFifo((TaskSchedulerImpl) context.taskScheduler());
        }
      } catch (Throwable e) {
        LOG.debug("not all was restored", e);
      }
    }

    /** Registers gauges with Spark's metrics system. */
    private void register(MetricRegistry registry, DecimaPool pool) {
      registry.register("answers", (Gauge<Long>) client::answers);
      registry.register("timeouts", (Gauge<Long>) client::timeouts);
      registry.register("lastAnswerAgeMs", (Gauge<Long>) client::lastAnswerAgeMs);
      registry.register("fallbackRounds", (Gauge<Long>) advisor::fallbackRounds);
      registry.register("heldTasks", (Gauge<Integer>) pool::heldTasks);
    }

    @Override public void shutdown() {
      if (mover != null) {
        mover.close();
      }
      if (client != null) {
        client.close();
        LOG.info("asked and answered: {}", figures());
      }
      clock.shutdownNow();
    }

    private byte[] hello(String application, String token) {
      ObjectNode hello = JsonNodeFactory.instance.objectNode().put("type", "hello")
          .put("protocol", PolicyClient.PROTOCOL).put("token", token)
          .put("application", application).put("name", SqlPlan.cut(context.appName(), SqlPlan.LONGEST_NAME))
          .put("spark", context.version()).put("moves_executors", moves);
      installed.writePools(hello);
      return Advisor.bytes(hello);
    }

    /** Ends jobs whose end the listener bus has dropped. */
    private void sweep() {
      try {
        if (!jobs.isEmpty() && jobs.endMissed(new Running(context))) {
          changed();
        }
      } catch (Throwable e) {
        trouble.warn("jobs could not be compared with Spark's", e);
      }
    }

    private void changed() {
      Advisor told = advisor;
      if (told != null) {
        told.changed();
        told.revive();
      }
    }

    private void policyChanged() {
      advisor.changed();
      advisor.revive();
    }

    private String figures() {
      ObjectNode out = JsonNodeFactory.instance.objectNode();
      advisor.figures(out);
      client.figures(out);
      return out.toString();
    }
  }
}
