package decima.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.ConnectException;
import java.nio.channels.ClosedChannelException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import javax.net.ssl.SSLSocketFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends one line of JSON to the policy and receives one line. A separate thread owns the connection; {@link #up} is true while
 * the policy is connected.
 *
 * <p>A timeout closes the connection: this covers a policy that hangs, a policy that sends half a message, and a policy that
 * reads nothing, so that writing blocks. Then the client tries the next address immediately. When all addresses have failed, it
 * pauses for {@code retryMs}; if services accept connections but do not answer, the pauses grow to 30 s.
 */
final class PolicyClient extends Thread {
  static final int PROTOCOL = 1;
  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");
  private static final int MOST_BAD = 3;
  private static final int LONGEST_PAUSE_MS = 30_000;
  /** Timeout for the connection and the answer to hello; no scheduling decision waits for these. */
  private static final int HELLO_MS = 5_000;
  /** Interval of checks of the connection while there are no questions. */
  private static final int CHECK_MS = 200;
  private static final ObjectMapper JSON =
      new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  private static final class Call {
    final long seq;
    final byte[] line;
    final CompletableFuture<Answer> answer = new CompletableFuture<>();
    final long start = System.nanoTime();

    Call(long seq, byte[] line) {
      this.seq = seq;
      this.line = line;
    }
  }

  private final Settings settings;
  private final Function<String, byte[]> hello;
  private final Runnable onChange;
  private final ScheduledExecutorService clock;
  private final LinkedBlockingQueue<Call> calls = new LinkedBlockingQueue<>();
  private volatile Connection connection;
  private volatile boolean closed;
  /** Index of the current address. */
  private volatile int place;
  /** Reasons logged since the last connection. */
  private final Set<String> said = new HashSet<>();
  /** Classes of errors that have been logged. */
  private final Set<Class<?>> errors = new HashSet<>();
  private int badInARow;

  /** Whether the policy is connected. */
  volatile boolean up;
  /** Whether the service is in shadow mode. */
  volatile boolean shadow;
  private volatile long asked;
  private volatile long answered;
  private volatile long answeredNanos;
  private volatile long late;
  private volatile long lost;
  private volatile long bad;
  private volatile long welcomed;
  /** Why the last connection failed or ended. */
  private volatile String reason = "";
  private final long[] micros = new long[1 << 14];

  /**
   * @param hello maps a token to the first line
   * @param onChange called when the policy has connected or disconnected
   */
  PolicyClient(Settings settings, Function<String, byte[]> hello, Runnable onChange, ScheduledExecutorService clock) {
    super("decima-policy");
    this.settings = settings;
    this.hello = hello;
    this.onChange = onChange;
    this.clock = clock;
    setDaemon(true);
  }

  /** Returns the answer, or null without one, within {@code timeoutMs}. */
  CompletableFuture<Answer> ask(long seq, byte[] line) {
    Call call = new Call(seq, line);
    Connection here = connection;
    ScheduledFuture<?> end = clock.schedule(() -> expire(call, here), settings.timeoutMs, TimeUnit.MILLISECONDS);
    call.answer.whenComplete((answer, error) -> end.cancel(false));
    calls.add(call);
    if (!up) {
      call.answer.complete(null);
    }
    return call.answer;
  }

  private void expire(Call call, Connection here) {
    if (!call.answer.isDone()) {
      up = false;
      late++;
      gone("it did not answer within " + settings.timeoutMs + " ms");
      hangUp(here);
      call.answer.complete(null);
    }
  }

  void close() {
    closed = true;
    up = false;
    hangUp(connection);
    interrupt();
  }

  @Override public void run() {
    long pause = settings.retryMs;
    int failed = 0;
    boolean mute = false;   // since the last pause a service accepted the connection and did not answer
    while (!closed) {
      long before = answered;
      boolean refused = false;
      try {
        greet();
        while (!closed) {
          Call call = calls.poll(CHECK_MS, TimeUnit.MILLISECONDS);
          if (call == null) {
            connection.check();
          } else if (!call.answer.isDone()) {
            serve(call);
          }
        }
      } catch (ConnectException e) {
        refused = true;
        gone("no service listens: " + e.getMessage());
      } catch (ClosedChannelException e) {
        LOG.debug("closed for a reason that was logged", e);
      } catch (IOException | RuntimeException e) {
        gone(e.getMessage() == null ? e.toString() : e.getMessage());
      } catch (InterruptedException e) {
        break;
      } catch (Throwable e) {   // no Error may end this thread either
        failed(e);
      }
      up = false;
      hangUp(connection);
      for (Call call = calls.poll(); call != null; call = calls.poll()) {
        call.answer.complete(null);
      }
      notifyOfChange();
      place = (place + 1) % settings.addresses.length;
      boolean served = answered > before;
      failed = served ? 1 : failed + 1;
      mute = failed > 1 && mute || !refused && !served;
      if (failed < settings.addresses.length) {
        continue;
      }
      pause = mute ? Math.min(2 * pause, Math.max(settings.retryMs, LONGEST_PAUSE_MS)) : settings.retryMs;
      failed = 0;
      try {
        Thread.sleep(pause);
      } catch (InterruptedException e) {
        break;
      }
    }
    up = false;
    hangUp(connection);
  }

  private void greet() throws IOException {
    byte[] line = hello.apply(settings.token());
    String address = settings.addresses[place];
    SSLSocketFactory tls = address.startsWith("unix:") ? null : settings.tlsFactory();
    Connection made = Connection.open(address);
    connection = made;
    ScheduledFuture<?> end = clock.schedule(() -> hangUp(made), HELLO_MS, TimeUnit.MILLISECONDS);
    JsonNode answer;
    try {
      if (tls != null) {
        made.secure(tls, address);
      }
      made.write(line);
      answer = parse(made.line());
    } catch (ClosedChannelException e) {
      throw new IOException("it did not answer hello within " + HELLO_MS + " ms");
    } catch (IOException e) {
      throw tls != null ? e : new IOException(e.getMessage() + " before its first answer: does it expect TLS?", e);
    } finally {
      end.cancel(false);
    }
    refusal(answer);
    if (!answer.path("type").asText().equals("welcome") || answer.path("protocol").asInt(-1) != PROTOCOL) {
      throw new IOException("it does not speak protocol " + PROTOCOL);
    }
    shadow = answer.path("shadow").asBoolean(false);
    welcomed++;
    synchronized (this) {
      said.clear();
    }
    badInARow = 0;
    LOG.info("policy at {}{}", address, shadow ? ", which only watches" : "");
    up = true;
    onChange.run();
  }

  private void serve(Call call) throws IOException {
    Answer answer = null;
    try {
      asked++;
      connection.write(call.line);
      JsonNode message = parse(connection.line());
      refusal(message);
      answer = new Answer(message, call.seq);
      badInARow = 0;
      if (System.nanoTime() - call.start > TimeUnit.MILLISECONDS.toNanos(settings.timeoutMs)) {
        answer = null;   // the clock's thread is late as well
        expire(call, connection);
        return;
      }
      answeredNanos = System.nanoTime();
      micros[(int) (answered++ & micros.length - 1)] = (System.nanoTime() - call.start) / 1000;
    } catch (IllegalArgumentException e) {
      bad++;
      LOG.warn("answer of the policy not understood: {}", e.getMessage());
      if (++badInARow >= MOST_BAD) {
        up = false;
        throw new IOException(MOST_BAD + " answers in a row were not understood");
      }
    } catch (IOException e) {
      up = false;
      lost += call.answer.isDone() ? 0 : 1;
      throw e;
    } finally {
      call.answer.complete(answer);
    }
  }

  private static JsonNode parse(String line) {
    try {
      JsonNode message = JSON.readTree(line);
      if (message != null && message.isObject()) {
        return message;
      }
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException(e.getOriginalMessage());
    }
    throw new IllegalArgumentException("no object");
  }

  private static void refusal(JsonNode message) throws IOException {
    if (message.path("type").asText().equals("refusal")) {
      throw new IOException("it refuses: " + message.path("reason").asText());
    }
  }

  /** Logs each reason once, not at every attempt. */
  private synchronized void gone(String reason) {
    this.reason = reason.replaceAll("\\s+", " ");
    String line = "no policy at " + settings.addresses[place] + ", Spark's own order until there is one: "
        + this.reason;
    if (!closed && said.add(line)) {
      LOG.warn("{}", line);
    }
  }

  /** Logs each class of {@code Error} once, since a connection would clear the other reasons. */
  private void failed(Throwable error) {
    if (errors.add(error.getClass())) {
      gone(error.toString());
    } else {
      LOG.debug("again", error);
    }
  }

  private void notifyOfChange() {
    try {
      onChange.run();
    } catch (Throwable e) {
      LOG.debug("Spark stops", e);
    }
  }

  private static void hangUp(Connection connection) {
    try {
      if (connection != null) {
        connection.close();
      }
    } catch (IOException e) {
      LOG.debug("closing", e);
    }
  }

  long answers() {
    return answered;
  }

  long timeouts() {
    return late;
  }

  long lost() {
    return lost;
  }

  String reason() {
    return reason;
  }

  /** Returns the time since the last answer; -1 before the first. */
  long lastAnswerAgeMs() {
    return answered == 0 ? -1 : TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - answeredNanos);
  }

  /** Writes the counts so far, and the times of answers in microseconds. */
  void figures(ObjectNode out) {
    long[] times = Arrays.copyOf(micros, (int) Math.min(answered, micros.length));
    Arrays.sort(times);
    out.put("asked", asked).put("answered", answered).put("late", late).put("lost", lost).put("bad", bad)
        .put("welcomed", welcomed);
    if (times.length > 0) {
      out.put("us_p50", times[times.length / 2]).put("us_p99", times[(int) (times.length * 0.99)])
          .put("us_max", times[times.length - 1]);
    }
  }
}
