package decima.spark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import org.apache.spark.SparkConf;

/** Validated settings {@code spark.decima.*}. */
final class Settings {
  /** Addresses of services in order, each HOST:PORT or unix:/path; empty: the plugin does nothing. */
  final String[] addresses;
  /** Connections to ports use TLS. */
  final boolean tls;
  private final String tlsCa;
  private final String tokenFile;
  /** Timeout of an answer. */
  final int timeoutMs;
  /** Pause before reconnecting, and time of Spark's own order after the policy has held back all stages. */
  final int retryMs;
  /** Wait for the answer within the round of offers, instead of requesting another round when it arrives. */
  final boolean sync;
  /** Ask whenever cores are offered, not only when a stage appears, ends or has launched its last task. */
  final boolean everyOffer;
  /** Also schedule jobs that name another pool. */
  final boolean allPools;
  /** Whether the application has chosen Spark's FAIR mode. */
  final boolean fair;
  /** Order without an answer: FIFO or FAIR. */
  final String fallback;
  /** Without an answer, keep the order of Spark's FAIR mode with all pools of the application, which uses this mode. */
  final boolean ownPools;
  /** The policy decides on the number of executors of the application. */
  final boolean executors;
  /** With {@link #executors}: longest time between two questions. */
  final int heartbeatMs;
  /** With {@link #executors}: time to wait for a policy before the application requests all executors. */
  final int startMs;

  /** Cores per task. */
  final double cpusPerTask;

  Settings(SparkConf conf) {
    String address = conf.get("spark.decima.address", "").trim();
    addresses = address.isEmpty() ? new String[0] : address.split("\\s*,\\s*", -1);
    tlsCa = conf.get("spark.decima.tlsCa", "").trim();
    tls = conf.getBoolean("spark.decima.tls", !tlsCa.isEmpty());
    tokenFile = conf.get("spark.decima.tokenFile", "").trim();
    timeoutMs = atLeastOne(conf, "spark.decima.timeoutMs", 200);
    retryMs = atLeastOne(conf, "spark.decima.retryMs", 1000);
    sync = choice(conf, "spark.decima.mode", "async", "sync").equals("sync");
    everyOffer = choice(conf, "spark.decima.ask", "event", "offer").equals("offer");
    allPools = conf.getBoolean("spark.decima.allPools", true);
    fair = conf.get("spark.scheduler.mode", "FIFO").equalsIgnoreCase("FAIR");
    fallback = fair ? choice(conf, "spark.decima.fallback", "FAIR", "FIFO")
        : choice(conf, "spark.decima.fallback", "FIFO", "FAIR");
    ownPools = fair && fallback.equals("FAIR");
    cpusPerTask = conf.getDouble("spark.task.cpus", 1);
    executors = conf.getBoolean("spark.decima.executors", false);
    heartbeatMs = atLeastOne(conf, "spark.decima.heartbeatMs", 250);
    startMs = atLeastOne(conf, "spark.decima.startMs", 5000);
    for (String each : addresses) {
      Connection.checkAddress(each);
    }
  }

  /**
   * Returns the token; empty if no file is configured and the default file is missing or belongs to another
   * user. The token is read for each connection, since a restarted service may have created a new one.
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

  /**
   * Returns TLS sockets that trust the certificate authorities of {@code spark.decima.tlsCa}, or of this Java; null without TLS.
   * The file is read for each connection, since it may have been replaced.
   */
  SSLSocketFactory tlsFactory() throws IOException {
    if (!tls) {
      return null;
    }
    if (tlsCa.isEmpty()) {
      return (SSLSocketFactory) SSLSocketFactory.getDefault();
    }
    try (InputStream file = Files.newInputStream(Paths.get(tlsCa))) {
      KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
      trusted.load(null, null);
      for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        trusted.setCertificateEntry("ca-" + trusted.size(), each);
      }
      if (trusted.size() == 0) {
        throw new IOException("no certificate in it");
      }
      TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      managers.init(trusted);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, managers.getTrustManagers(), null);
      return context.getSocketFactory();
    } catch (IOException | GeneralSecurityException e) {
      throw new IOException("spark.decima.tlsCa cannot be read: " + e, e);
    }
  }

  /** Returns the home folder by the rule of the service: $HOME, else the user's home. Java's user.home ignores $HOME. */
  private static Path home() {
    String home = System.getenv("HOME");
    return Paths.get(home == null || home.isEmpty() ? System.getProperty("user.home") : home);
  }

  /** Whether the file belongs to the user of this process. Under sudo, $HOME may belong to another user. */
  private static boolean isOurs(Path file) throws IOException {
    try {
      Object user = Files.getAttribute(Paths.get("/proc/self"), "unix:uid");
      return user.equals(Files.getAttribute(file, "unix:uid"));
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {   // not Linux
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
