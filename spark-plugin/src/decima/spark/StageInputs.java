package decima.spark;

import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.NarrowDependency;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.RDDOperationScope;
import org.apache.spark.scheduler.Stage;
import org.apache.spark.storage.RDDInfo;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * What Spark knows of a stage before its tasks run: its operators, and the size of the files that it reads. Classes of
 * Spark SQL are read by reflection, since the module may be absent.
 */
final class StageInputs {
  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");
  /** Beginning of the name of an operator that stands for operators that Spark compiled into one function. */
  private static final String COMPILED = "WholeStageCodegen";
  /** The service uses no more operators of a stage. */
  private static final int MOST_OPERATORS = 64;
  /** Stages that read more partitions or files have an unknown size, as counting them would take too long. */
  private static final int MOST_FILES = 100_000;

  private StageInputs() { }

  /** Returns the names of the operations that made the stage's RDDs, in order of execution, each once. */
  static List<String> scopes(Stage stage) {
    Map<Integer, String> byRdd = new TreeMap<>();
    try {
      for (Object each : Reflect.list(Reflect.get(stage.latestInfo(), "rddInfos"))) {
        Option<RDDOperationScope> scope = ((RDDInfo) each).scope();
        byRdd.put(((RDDInfo) each).id(), scope.isDefined() ? scope.get().name().trim() : "");
      }
    } catch (Throwable e) {
      LOG.debug("operators of a stage", e);
      return Collections.emptyList();
    }
    Set<String> names = new LinkedHashSet<>(byRdd.values());
    names.remove("");
    return new ArrayList<>(names);
  }

  /**
   * Returns the operators of a stage in order of execution.
   *
   * @param compiled operators of the plan that Spark compiled into one function each, see {@link SqlPlan#compiled}
   */
  static List<String> operators(List<String> scopes, Map<String, List<String>> compiled) {
    List<String> operators = new ArrayList<>();
    for (String scope : scopes) {
      if (compiled.containsKey(scope)) {
        List<String> inside = new ArrayList<>(compiled.get(scope));
        Collections.reverse(inside);   // a child runs before its parent
        operators.addAll(inside);
      } else {
        operators.add(scope.startsWith(COMPILED) ? COMPILED : SqlPlan.cut(scope, SqlPlan.LONGEST_NAME));
      }
    }
    return operators.subList(0, Math.min(operators.size(), MOST_OPERATORS));
  }

  /**
   * Returns the size of the files, or parts of files, that the tasks of a stage read; 0 if they read none, and null if the
   * size is unknown. Called in the DAG scheduler's thread, which has computed all partitions.
   */
  static Long inputBytes(Stage stage) {
    try {
      long bytes = 0;
      Set<Integer> seen = new HashSet<>();
      Deque<RDD<?>> pending = new ArrayDeque<>(Collections.singleton(stage.rdd()));
      while (!pending.isEmpty()) {
        RDD<?> rdd = pending.pop();
        if (!seen.add(rdd.id())) {
          continue;
        }
        Long read = rdd.getStorageLevel().isValid() ? null : fileBytes(rdd);   // a cached RDD may be in memory
        if (read == null) {
          return null;
        }
        bytes += read;
        for (Object each : Reflect.list(Reflect.get(rdd, "dependencies"))) {
          if (each instanceof NarrowDependency) {
            pending.push(((NarrowDependency<?>) each).rdd());
          }
        }
      }
      return bytes;
    } catch (Throwable e) {
      LOG.debug("size of a stage's input", e);
      return null;
    }
  }

  /** Returns the size of the files that an RDD reads itself; null if unknown. */
  private static Long fileBytes(RDD<?> rdd) throws ReflectiveOperationException {
    for (Class<?> type = rdd.getClass(); type != RDD.class; type = type.getSuperclass()) {
      switch (type.getName()) {
        case "org.apache.spark.sql.execution.datasources.FileScanRDD":
          return filesOf(Reflect.list(Reflect.get(rdd, "filePartitions")));
        case "org.apache.spark.sql.execution.datasources.v2.DataSourceRDD":
          List<Object> partitions = new ArrayList<>();
          for (Object each : rdd.partitions()) {
            partitions.addAll(Reflect.list(Reflect.get(each, "inputPartitions")));
          }
          return filesOf(partitions);
        case "org.apache.spark.rdd.HadoopRDD":
          return splits(rdd, "inputSplit");
        case "org.apache.spark.rdd.NewHadoopRDD":
          return splits(rdd, "serializableHadoopSplit");
        default:
      }
    }
    return 0L;
  }

  /** Returns the size of the files in partitions of a scan; null if they are of another source, or too many. */
  private static Long filesOf(List<Object> partitions) throws ReflectiveOperationException {
    List<Object> files = new ArrayList<>();
    for (Object each : partitions) {
      if (!each.getClass().getName().equals("org.apache.spark.sql.execution.datasources.FilePartition")) {
        return null;
      }
      files.addAll(Arrays.asList((Object[]) Reflect.get(each, "files")));
    }
    if (files.size() > MOST_FILES) {
      return null;
    }
    long bytes = 0;
    Method length = files.isEmpty() ? null : files.get(0).getClass().getMethod("length");
    for (Object each : files) {
      bytes += (Long) length.invoke(each);
    }
    return bytes;
  }

  /** Returns the size of the input splits of an RDD of Hadoop; null if they are too many. */
  private static Long splits(RDD<?> rdd, String name) throws ReflectiveOperationException {
    if (rdd.partitions().length > MOST_FILES) {
      return null;
    }
    long bytes = 0;
    for (Object each : rdd.partitions()) {
      Object split = Reflect.get(Reflect.get(each, name), "value");
      bytes += (Long) Reflect.get(split, "getLength");
    }
    return bytes;
  }
}
