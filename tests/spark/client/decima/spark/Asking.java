package decima.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkConf;

/**
 * The plugin's clients without Spark: each asks a question every EVERY ms for SECONDS, and prints a line for each:
 * number of the client, time since the start, time until it was settled, number, stage of the answer or -1 without
 * one, ms. Arguments: SECONDS EVERY, and settings KEY=VALUE .. of each client, separated by --.
 */
public final class Asking {
  private static byte[] hello(String token, boolean fails) {
    if (fails) {
      throw new StackOverflowError("for a test");
    }
    return ("{\"type\": \"hello\", \"protocol\": 1, \"token\": \"" + token + "\", \"application\": \"app\", "
        + "\"name\": \"asking\", \"spark\": \"3\"}\n").getBytes();
  }

  public static void main(String[] arguments) throws Exception {
    List<SparkConf> clients = new ArrayList<>();
    clients.add(new SparkConf(false));
    for (int i = 2; i < arguments.length; i++) {
      if (arguments[i].equals("--")) {
        clients.add(new SparkConf(false));
      } else {
        String[] pair = arguments[i].split("=", 2);
        clients.get(clients.size() - 1).set("spark.decima." + pair[0], pair[1]);
      }
    }
    ExecutorService threads = Executors.newCachedThreadPool();
    List<Callable<Void>> runs = new ArrayList<>();
    for (SparkConf conf : clients) {
      int number = runs.size();
      runs.add(() -> ask(number, conf, Double.parseDouble(arguments[0]), Long.parseLong(arguments[1])));
    }
    for (Future<Void> run : threads.invokeAll(runs)) {
      run.get();
    }
    System.exit(0);
  }

  private static Void ask(int number, SparkConf conf, double seconds, long everyMs) throws Exception {
    ScheduledExecutorService clock = Executors.newScheduledThreadPool(1);
    AtomicInteger fails = new AtomicInteger(conf.getInt("spark.decima.fails", 0));
    PolicyClient client = new PolicyClient(new Settings(conf), token -> hello(token, fails.getAndDecrement() > 0),
        () -> { }, clock);
    client.start();
    long start = System.nanoTime();
    long end = start + (long) (seconds * 1e9);
    for (long seq = 1; System.nanoTime() < end; seq++) {
      long asked = System.nanoTime();
      String line = "{\"type\": \"state\", \"seq\": " + seq + ", \"time_ms\": 1000.0, \"executors\": [{\"id\": \"0\", "
          + "\"slots\": 1, \"running\": 0}], \"jobs\": [{\"id\": \"a\", \"submitted_time_ms\": 0.0, \"running\": 0, "
          + "\"stages\": [{\"id\": " + seq + ", \"state\": \"ready\", \"tasks\": 1, \"done\": 0, \"running\": 0, "
          + "\"pending\": 1}]}]}\n";
      long[] settled = {asked};
      Answer answer = !client.up ? null
          : client.ask(seq, line.getBytes()).whenComplete((found, error) -> settled[0] = System.nanoTime()).get();
      int stage = answer == null || !answer.stages().iterator().hasNext() ? -1 : answer.stages().iterator().next();
      System.out.printf("%d %.3f %.3f %d %d%n", number, (asked - start) / 1e6, (settled[0] - asked) / 1e6, seq, stage);
      TimeUnit.MILLISECONDS.sleep(everyMs);
    }
    client.close();
    return null;
  }
}
