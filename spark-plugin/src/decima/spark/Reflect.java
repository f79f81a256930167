package decima.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.spark.scheduler.ExecutorDecommissionInfo;
import org.apache.spark.scheduler.FIFOSchedulableBuilder;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.Schedulable;
import org.apache.spark.scheduler.SchedulingMode;
import org.apache.spark.scheduler.ShuffleMapTask;
import org.apache.spark.scheduler.Task;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSet;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.scheduler.WorkerOffer;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.$colon$colon;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.mutable.ArrayBuffer;

/**
 * Calls whose signatures differ between Spark 3.3 (Scala 2.12) and 4.x (Scala 2.13): methods that take or return a Seq,
 * and constructors with new parameters. All other methods are called directly, so one jar runs in all versions.
 */
final class Reflect {
  private static final Method APPEND = method(ArrayBuffer.class, "$plus$eq", 1);

  private Reflect() { }

  static Object get(Object object, String name) throws ReflectiveOperationException {
    return object.getClass().getMethod(name).invoke(object);
  }

  /** Returns the elements of any Scala collection. */
  static List<Object> list(Object collection) {
    List<Object> out = new ArrayList<>();
    for (Iterator<?> i = ((scala.collection.Iterable<?>) collection).iterator(); i.hasNext(); ) {
      out.add(i.next());
    }
    return out;
  }

  static ArrayBuffer<TaskSetManager> buffer(List<TaskSetManager> sets) throws ReflectiveOperationException {
    ArrayBuffer<TaskSetManager> out = new ArrayBuffer<>();
    for (TaskSetManager each : sets) {
      APPEND.invoke(out, each);
    }
    return out;
  }

  /** A task set whose tasks never run; TaskSetManager needs at least one. */
  static TaskSet taskSet(int stage, int job, int tasks) throws ReflectiveOperationException {
    Task<?>[] all = new Task<?>[tasks];
    for (int i = 0; i < tasks; i++) {
      all[i] = new ShuffleMapTask(0);
    }
    Constructor<?> made = TaskSet.class.getConstructors()[0];
    Object[] arguments = new Object[made.getParameterCount()];
    for (int i = 0; i < arguments.length; i++) {
      Class<?> type = made.getParameterTypes()[i];
      arguments[i] = type.isArray() ? all
          : type == int.class ? (Object) (i == 1 ? stage : i == 3 ? job : 0)
          : type == boolean.class ? (Object) false
          : type == Properties.class ? new Properties()
          : type == Option.class ? Option.empty()
          : null;
    }
    return (TaskSet) made.newInstance(arguments);
  }

  /** Offers a scheduler the cores for this number of tasks, on an executor that need not exist. */
  static void offer(TaskSchedulerImpl scheduler, String executor, int tasks, double cpusPerTask)
      throws ReflectiveOperationException {
    Constructor<?> made = WorkerOffer.class.getConstructors()[0];
    Object[] arguments = new Object[made.getParameterCount()];
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = i < 2 ? executor : i == 2 ? cores(made.getParameterTypes()[i], tasks * cpusPerTask)
          : WorkerOffer.class.getMethod("$lessinit$greater$default$" + (i + 1)).invoke(null);
    }
    ArrayBuffer<Object> offers = new ArrayBuffer<>();
    APPEND.invoke(offers, made.newInstance(arguments));
    boolean allResources = true;
    method(TaskSchedulerImpl.class, "resourceOffers", 2).invoke(scheduler, get(offers, "toVector"), allResources);
  }

  /** A number of cores, which is a decimal from Spark 4.3 on. */
  private static Object cores(Class<?> type, double number) {
    return type == int.class ? (Object) (int) number : scala.math.BigDecimal$.MODULE$.apply(Double.toString(number));
  }

  /** Lets a scheduler in FAIR mode, which has no jobs yet, run all jobs in FIFO order, whatever pools they name. */
  static void restoreFifo(TaskSchedulerImpl scheduler) throws ReflectiveOperationException {
    Pool fifo = new Pool("default", SchedulingMode.FIFO(), 0, 1);
    synchronized (scheduler) {
      for (Schedulable each : scheduler.rootPool().schedulableQueue().toArray(new Schedulable[0])) {
        scheduler.rootPool().removeSchedulable(each);
      }
      scheduler.rootPool().addSchedulable(fifo);
    }
    Field builder = TaskSchedulerImpl.class.getDeclaredField("schedulableBuilder");
    builder.setAccessible(true);
    builder.set(scheduler, new FIFOSchedulableBuilder(fifo));
  }

  static void stop(TaskSchedulerImpl scheduler) throws ReflectiveOperationException {
    for (Method each : TaskSchedulerImpl.class.getMethods()) {
      if (each.getName().equals("stop") && each.getParameterCount() <= 1) {
        each.invoke(scheduler, each.getParameterCount() == 0 ? new Object[0] : new Object[] {0});
      }
    }
  }

  /** Marks executors: the driver makes no further offers of them. The executors are not notified. */
  @SuppressWarnings("unchecked")
  static void decommission(CoarseGrainedSchedulerBackend backend, List<String> ids, String why)
      throws ReflectiveOperationException {
    Tuple2<String, ExecutorDecommissionInfo>[] all = new Tuple2[ids.size()];
    for (int i = 0; i < all.length; i++) {
      all[i] = new Tuple2<>(ids.get(i), new ExecutorDecommissionInfo(why, Option.empty()));
    }
    boolean adjustTarget = false;
    boolean triggeredByExecutor = true;
    method(backend.getClass(), "decommissionExecutors", 3).invoke(backend, all, adjustTarget, triggeredByExecutor);
  }

  /** Kills those of the executors that are idle. */
  static void killIdle(CoarseGrainedSchedulerBackend backend, List<String> ids) throws ReflectiveOperationException {
    scala.collection.immutable.List<Object> all = noList();
    for (String id : ids) {
      all = new $colon$colon<>(id, all);
    }
    boolean adjustTarget = false;
    boolean countFailures = false;
    boolean force = false;
    method(backend.getClass(), "killExecutors", 4).invoke(backend, all, adjustTarget, countFailures, force);
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static scala.collection.immutable.List<Object> noList() {
    return (scala.collection.immutable.List) Nil$.MODULE$;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  static scala.collection.immutable.Map<String, Object> emptyMap() {
    return (scala.collection.immutable.Map) Map$.MODULE$.empty();
  }

  static Method method(Class<?> type, String name, int arguments) {
    for (Method each : type.getMethods()) {
      if (each.getName().equals(name) && each.getParameterCount() == arguments) {
        return each;
      }
    }
    throw new IllegalStateException(type + " has no " + name);
  }
}
