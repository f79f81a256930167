package decima.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Decides when to ask the policy, and keeps the policy's last answer. Guarded by the lock of the task scheduler.
 *
 * <p>The advisor asks after each event that may change the answer: a stage appeared, ended or launched its last task, a
 * job ended, an executor joined or left. It also asks every second while slots are free and tasks wait. While an answer is pending Spark launches no task, for at most {@code timeoutMs}; then it
 * continues by the last answer, or in its own order. The arrival of the answer requests another round of offers.
 */
class Advisor {
  /** Action in a round of offers: obey the answer, keep Spark's own order, or launch no task. */
  enum Round { OBEY, USUAL, HOLD }

  /** Returns the question with this number, with or without the plans of queries. */
  interface Question {
    ObjectNode of(long number, boolean plans);
  }

  /** Counts of questions that got no answer, and of the time in Spark's own order for want of an answer, since the start. */
  private static final class Missed {
    final long late;
    final long lost;
    final long fallbackNanos;

    Missed(long late, long lost, long fallbackNanos) {
      this.late = late;
      this.lost = lost;
      this.fallbackNanos = fallbackNanos;
    }

    /** Adds the differences from earlier counts to a question, with the last reason if anything was missed. */
    void write(ObjectNode question, Missed before, String reason) {
      boolean any = late > before.late || lost > before.lost || fallbackNanos > before.fallbackNanos;
      question.putObject("missed").put("late", late - before.late).put("lost", lost - before.lost)
          .put("fallback_ms", (fallbackNanos - before.fallbackNanos) / 1e6)
          .put("reason", any ? SqlPlan.cut(reason, SqlPlan.LONGEST_NAME) : "");
    }
  }

  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");
  private static final ObjectMapper JSON = new ObjectMapper();
  /** Interval of questions while slots are free. */
  private static final int SPARE_MS = 1_000;

  private final Settings settings;
  private final TaskSchedulerImpl scheduler;
  private final PolicyClient client;
  private final Question state;
  private final Consumer<Answer> onAnswer;
  private final ScheduledExecutorService clock;
  final Trouble trouble;

  private volatile boolean dirty = true;
  private Answer answer;
  private CompletableFuture<Answer> pending;
  private boolean fresh;
  private long seq;
  private long askedNanos = System.nanoTime();
  private boolean holding;
  private long heldNanos;
  /** Time since which no task runs because the policy holds back all stages; 0 if a task may run. */
  private long stillNanos;
  private long usualUntilMs;
  private boolean said;
  /** Counts in the last question that the service has decided. */
  private Missed reported = new Missed(0, 0, 0);
  private long fallbackNanos;
  /** Time of the last round, if it was in Spark's own order for want of an answer; else 0. */
  private long fallbackSinceNanos;
  // counts for the log and Spark's metrics
  private long rounds;
  private volatile long usual;   // written only under the lock
  private long held;
  private long stalls;
  private long stateNanos;
  private long stateBytes;

  /**
   * @param onAnswer called with each answer, outside of the lock
   */
  Advisor(Settings settings, TaskSchedulerImpl scheduler, PolicyClient client, ScheduledExecutorService clock,
      Question state, Consumer<Answer> onAnswer, Trouble trouble) {
    this.trouble = trouble;
    this.settings = settings;
    this.scheduler = scheduler;
    this.client = client;
    this.clock = clock;
    this.state = state;
    this.onAnswer = onAnswer;
  }

  /** Requests a question after an event. May be called from any thread. */
  void changed() {
    dirty = true;
  }

  /** Returns the answer to obey; null in all rounds except {@link Round#OBEY}. */
  Answer answer() {
    return answer;
  }

  Round round() {
    rounds++;
    Round round = decide();
    countFallback(!client.up || round == Round.USUAL && !client.shadow);
    usual += round == Round.USUAL ? 1 : 0;
    held += round == Round.HOLD ? 1 : 0;
    if (round != Round.HOLD) {
      holding = false;
    }
    return round;
  }

  private void countFallback(boolean falls) {
    long now = System.nanoTime();
    fallbackNanos += fallbackSinceNanos == 0 ? 0 : now - fallbackSinceNanos;
    fallbackSinceNanos = falls ? now : 0;
  }

  private Round decide() {
    if (!client.up) {
      answer = null;
      pending = null;
      dirty = true;
      return Round.USUAL;
    }
    if (client.shadow) {
      answer = null;
      if (pending == null && dirty) {
        ask(null);
      }
      return Round.USUAL;
    }
    if (System.currentTimeMillis() < usualUntilMs) {
      dirty = true;
      return Round.USUAL;
    }
    boolean late = holding && System.nanoTime() - heldNanos >= TimeUnit.MILLISECONDS.toNanos(settings.timeoutMs);
    if (pending == null && !late && (dirty || settings.everyOffer && !fresh)) {
      ask(settings.sync ? settings.timeoutMs : null);
    }
    fresh = false;
    if (pending != null && !late) {
      hold();
      return Round.HOLD;
    }
    return answer == null ? Round.USUAL : Round.OBEY;
  }

  private void hold() {
    if (!holding) {
      holding = true;
      heldNanos = System.nanoTime();
      clock.schedule(this::revive, settings.timeoutMs, TimeUnit.MILLISECONDS);
    }
  }

  /** @param waitMs maximum time to wait for the answer; null: do not wait, as the answer requests another round */
  private void ask(Integer waitMs) {
    dirty = false;
    askedNanos = System.nanoTime();
    Missed missed = new Missed(client.timeouts(), client.lost(), fallbackNanos);
    byte[] line = line(++seq, missed);
    stateNanos += System.nanoTime() - askedNanos;
    stateBytes += line.length;
    CompletableFuture<Answer> asked = client.ask(seq, line);
    if (waitMs == null) {
      pending = asked;
      asked.whenComplete((said, error) -> answered(asked, said, missed));
      return;
    }
    try {
      answer = asked.get(waitMs, TimeUnit.MILLISECONDS);
      heard(answer, missed);
      tell(answer);
    } catch (TimeoutException | ExecutionException e) {
      answer = null;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      answer = null;
    }
    dirty |= answer == null;
  }

  /** The service has received the counts of this question, unless it answered without a decision. */
  private void heard(Answer said, Missed missed) {
    if (said != null && said.decided) {
      reported = missed;
    }
  }

  private void answered(CompletableFuture<Answer> asked, Answer said, Missed missed) {
    synchronized (scheduler) {
      heard(said, missed);
      if (pending == asked) {
        pending = null;
        answer = said;
        fresh = true;
        dirty |= said == null;
      }
    }
    tell(said);
    revive();
  }

  private void tell(Answer said) {
    if (said != null && !client.shadow) {
      try {
        onAnswer.accept(said);
      } catch (Throwable e) {
        trouble.warn("number of executors passed over", e);
      }
    }
  }

  /** Heartbeat: asks outside of rounds after a pause. Catches all exceptions, since an exception would end the timer. */
  void beat(long everyMs) {
    try {
      askIfSilent(everyMs);
    } catch (Throwable e) {
      trouble.warn("could not ask", e);
    }
  }

  /** Called in a round without tasks to launch. It asks too, so that the policy knows the end of each job, even the last. */
  void idle() {
    countFallback(false);
    if (client.up && pending == null && dirty) {
      ask(null);
    }
  }

  /** Called when slots are free while tasks wait. Requests a question, since the policy may decide differently. */
  void spare() {
    dirty |= System.nanoTime() - askedNanos >= TimeUnit.MILLISECONDS.toNanos(SPARE_MS);
  }

  private void askIfSilent(long everyMs) {
    synchronized (scheduler) {
      long since = System.nanoTime() - askedNanos;
      if (client.up && pending == null && since >= TimeUnit.MILLISECONDS.toNanos(everyMs)) {
        ask(null);
      }
    }
  }

  /** Called when the answer allows a task to run. */
  void moving() {
    stillNanos = 0;
  }

  /**
   * Called when the policy holds back all stages and no task runs. This is allowed while the next stage of a job is about to
   * appear, so the advisor asks again. But a policy cannot stop Spark: after {@code timeoutMs} Spark uses its own order for a while.
   *
   * @return whether Spark uses its own order
   */
  boolean stalled() {
    long patienceMs = Math.min(settings.timeoutMs, settings.retryMs);
    if (stillNanos == 0) {
      stillNanos = System.nanoTime();
      dirty = true;
      revive();
      clock.schedule(this::revive, patienceMs, TimeUnit.MILLISECONDS);
      return false;
    }
    if (System.nanoTime() - stillNanos < TimeUnit.MILLISECONDS.toNanos(patienceMs)) {
      return false;
    }
    stillNanos = 0;
    stalls++;
    if (!said) {
      LOG.warn("the policy holds everything back while nothing runs: Spark's own order for {} ms, each time",
          settings.retryMs);
      said = true;
    }
    usualUntilMs = System.currentTimeMillis() + settings.retryMs;
    dirty = true;
    revive();   // this round may have offered only one core
    return true;
  }

  /** Requests a round of offers, unless Spark is stopping: it would log a stack trace. */
  void revive() {
    try {
      if (!scheduler.sc().isStopped()) {
        scheduler.backend().reviveOffers();
      }
    } catch (Throwable e) {   // also exceptions that Scala's methods do not declare
      LOG.debug("Spark stops", e);
    }
  }

  private byte[] line(long number, Missed missed) {
    byte[] line = line(number, missed, true);
    return line.length <= Connection.LONGEST_LINE ? line : line(number, missed, false);
  }

  private byte[] line(long number, Missed missed, boolean plans) {
    ObjectNode question = state.of(number, plans);
    missed.write(question, reported, client.reason());
    return bytes(question);
  }

  static byte[] bytes(ObjectNode message) {
    try {
      return (JSON.writeValueAsString(message) + "\n").getBytes(StandardCharsets.UTF_8);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns the number of rounds of offers in Spark's own order. */
  long fallbackRounds() {
    return usual;
  }

  void figures(ObjectNode out) {
    out.put("rounds", rounds).put("usual", usual).put("held", held).put("stalls", stalls).put("questions", seq)
        .put("state_us_mean", seq == 0 ? 0 : stateNanos / 1e3 / seq)
        .put("state_bytes_mean", seq == 0 ? 0 : stateBytes / (double) seq);
  }
}
