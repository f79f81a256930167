package decima.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.spark.SparkConf;

/** The keys {@code spark.decima.*}, checked. */
final class Settings {
  /** HOST:PORT or unix:/path; empty: nothing is asked. */
  final String address;
  private final String tokenFile;
  /** How long Spark waits for an answer. */
  final int timeoutMs;
  /** Pause before connecting again, and how long Spark goes its own way where the policy holds everything. */
  final int retryMs;
  /** Wait for the answer in the middle of the round of offers, instead of asking for another round when it is there. */
  final boolean sync;
  /** Ask whenever cores are offered, not only when a stage comes, goes or has launched its last task. */
  final boolean everyOffer;
  /** Jobs that name a pool of their own are taken, too. */
  final boolean allPools;
  /** Order where there is no answer: FIFO or FAIR. */
  final String fallback;
  /** The policy says how many executors the application has. */
  final boolean executors;
  /** With {@link #executors}, how long at most between two questions. */
  final int heartbeatMs;
  /** With {@link #executors}, how long to wait for a policy before the application asks for all there are. */
  final int startMs;

  /** Cores that a task takes. */
  final double cpusPerTask;

  Settings(SparkConf conf) {
    address = conf.get("spark.decima.address", "").trim();
    tokenFile = conf.get("spark.decima.tokenFile", "").trim();
    timeoutMs = atLeastOne(conf, "spark.decima.timeoutMs", 200);
    retryMs = atLeastOne(conf, "spark.decima.retryMs", 1000);
    sync = choice(conf, "spark.decima.mode", "async", "sync").equals("sync");
    everyOffer = choice(conf, "spark.decima.ask", "event", "offer").equals("offer");
    allPools = conf.getBoolean("spark.decima.allPools", true);
    boolean fair = conf.get("spark.scheduler.mode", "FIFO").equalsIgnoreCase("FAIR");
    fallback = fair ? choice(conf, "spark.decima.fallback", "FAIR", "FIFO")
        : choice(conf, "spark.decima.fallback", "FIFO", "FAIR");
    cpusPerTask = conf.getDouble("spark.task.cpus", 1);
    executors = conf.getBoolean("spark.decima.executors", false);
    heartbeatMs = atLeastOne(conf, "spark.decima.heartbeatMs", 250);
    startMs = atLeastOne(conf, "spark.decima.startMs", 5000);
    if (!address.isEmpty()) {
      Connection.checkAddress(address);
    }
  }

  /**
   * What the service wants to hear first; empty if no file is named and the usual one is not there, or is not of this
   * user. It is read anew for each connection, since a service that starts again may have made another.
   */
  String token() throws IOException {
    Path file = tokenFile.isEmpty() ? home().resolve(".decima").resolve("token") : Paths.get(tokenFile);
    if (tokenFile.isEmpty() && !(Files.isReadable(file) && isOurs(file))) {
      return "";
    }
    try {
      return new String(Files.readAllBytes(file), StandardCharsets.UTF_8).trim();
    } catch (IOException e) {
      throw new IOException("spark.decima.tokenFile cannot be read: " + e, e);
    }
  }

  /** As the service has it: $HOME, else the home of the user; Java's user.home does not ask for $HOME. */
  private static Path home() {
    String home = System.getenv("HOME");
    return Paths.get(home == null || home.isEmpty() ? System.getProperty("user.home") : home);
  }

  /** Whether the file belongs to the user of this process: $HOME may be that of another, as with sudo. */
  private static boolean isOurs(Path file) throws IOException {
    try {
      Object user = Files.getAttribute(Paths.get("/proc/self"), "unix:uid");
      return user.equals(Files.getAttribute(file, "unix:uid"));
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {   // no Linux
      return Files.getOwner(file).getName().equals(System.getProperty("user.name"));
    }
  }

  private static int atLeastOne(SparkConf conf, String key, int usual) {
    int value = conf.getInt(key, usual);
    if (value < 1) {
      throw new IllegalArgumentException(key + " is " + value + ", but must be at least 1");
    }
    return value;
  }

  private static String choice(SparkConf conf, String key, String usual, String other) {
    String value = conf.get(key, usual);
    for (String each : new String[] {usual, other}) {
      if (each.equalsIgnoreCase(value)) {
        return each;
      }
    }
    throw new IllegalArgumentException(key + " is '" + value + "', but must be " + usual + " or " + other);
  }
}
