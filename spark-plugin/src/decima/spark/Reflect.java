package decima.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.spark.scheduler.ShuffleMapTask;
import org.apache.spark.scheduler.Task;
import org.apache.spark.scheduler.TaskSet;
import org.apache.spark.scheduler.TaskSetManager;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

/**
 * Calls whose signatures differ between Spark 3.3 (Scala 2.12) and 4.x (Scala 2.13): wherever one takes or returns a Seq,
 * and constructors that have grown. Everything else is called as usual, so that one jar serves all.
 */
final class Reflect {
  private static final Method APPEND = method(ArrayBuffer.class, "$plus$eq", 1);

  private Reflect() { }

  static Object get(Object object, String name) throws ReflectiveOperationException {
    return object.getClass().getMethod(name).invoke(object);
  }

  /** What is in a Scala collection of any kind. */
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

  /** A task set with one task that no one will run: TaskSetManager wants at least one. */
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

  static Method method(Class<?> type, String name, int arguments) {
    for (Method each : type.getMethods()) {
      if (each.getName().equals(name) && each.getParameterCount() == arguments) {
        return each;
      }
    }
    throw new IllegalStateException(type + " has no " + name);
  }
}
