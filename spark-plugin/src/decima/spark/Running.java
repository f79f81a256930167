package decima.spark;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.spark.SparkContext;

/** Spark's own tables of running Spark jobs and queries. */
final class Running implements JobGraph.Alive {
  private final SparkContext context;

  Running(SparkContext context) {
    this.context = context;
  }

  @Override public boolean sparkJob(int id) {
    return context.dagScheduler().jobIdToActiveJob().contains(id);
  }

  /** By reflection, since Spark's SQL module may be absent. */
  @Override public boolean query(long id) {
    try {
      Method found = Class.forName("org.apache.spark.sql.execution.SQLExecution").getMethod("getQueryExecution", long.class);
      return found.invoke(null, id) != null;
    } catch (ClassNotFoundException | NoSuchMethodException | IllegalAccessException | InvocationTargetException e) {
      return true;
    }
  }
}
