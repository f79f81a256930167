package decima.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.api.java.function.Function2;
import scala.Tuple2;

/** Tasks of a stage in {@code decima reproduce fig9-spark}: each sleeps for a given time. */
public final class Nap implements Function2<Integer, Iterator<Object>, Iterator<Tuple2<Integer, Integer>>> {
  private static final long serialVersionUID = 1;

  private final long[] ms;

  /** @param ms sleeping times of the tasks, ms, comma-separated */
  public Nap(String ms) {
    this.ms = Arrays.stream(ms.split(",")).mapToLong(Long::parseLong).toArray();
  }

  @Override public Iterator<Tuple2<Integer, Integer>> call(Integer task, Iterator<Object> rows)
      throws InterruptedException {
    rows.forEachRemaining(row -> { });
    Thread.sleep(ms[task]);
    return Collections.singletonList(new Tuple2<>(task, 0)).iterator();
  }
}
