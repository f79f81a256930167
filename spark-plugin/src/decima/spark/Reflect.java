package decima.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.spark.scheduler.ExecutorDecommissionInfo;
import org.apache.spark.scheduler.ShuffleMapTask;
import org.apache.spark.scheduler.Task;
import org.apache.spark.scheduler.TaskSet;
import org.apache.spark.scheduler.TaskSetManager;
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
 * and constructors with new parameters. Everything else is called directly, so that one jar serves all versions.
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

  /** A task set with one task that never runs, since TaskSetManager needs at least one. */
  static TaskSet emptyTaskSet() throws ReflectiveOperationException {
    Constructor<?> made = TaskSet.class.getConstructors()[0];
    Object[] arguments = new Object[made.getParameterCount()];
    for (int i = 0; i < arguments.length; i++) {
      Class<?> type = made.getParameterTypes()[i];
      arguments[i] = type.isArray() ? new Task<?>[] {new ShuffleMapTask(0)}
          : type == int.class ? (Object) (i == 1 ? -1 : 0)   // the second is the stage's id
          : type == boolean.class ? (Object) false
          : type == Properties.class ? new Properties()
          : type == Option.class ? Option.empty()
          : null;
    }
    return (TaskSet) made.newInstance(arguments);
  }

  /** Marks executors: the driver makes no more offers of them; the executors are not notified. */
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

  /** Kills the idle ones of these executors. */
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
