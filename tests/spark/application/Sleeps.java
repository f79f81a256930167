import java.util.Arrays;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/** An application with one job of eight tasks, which sleep. */
public final class Sleeps {
  public static void main(String[] arguments) {
    try (JavaSparkContext context = new JavaSparkContext(new SparkConf().setAppName("sleeps"))) {
      context.sc().setJobDescription("sleeps");
      context.parallelize(Arrays.asList(1, 2, 3, 4, 5, 6, 7, 8), 8).foreach(each -> Thread.sleep(300));
    }
  }
}
