package decima.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** Answer of the policy: order of stages, and maximum numbers of running tasks. */
final class Answer {
  /** No limit. */
  static final int ALL = Integer.MAX_VALUE;

  /** Maps each stage to its maximum number of running tasks, in order of priority. */
  private final Map<Integer, Integer> stages = new LinkedHashMap<>();
  private final Map<String, Integer> limits = new HashMap<>();
  /** Whether stages that are not named are held back, instead of launched after the named stages. */
  final boolean hold;
  /** Target number of executors of the application; -1: no change. */
  final int executors;
  /** Whether the service has read and decided the question. */
  final boolean decided;

  /**
   * Parses an answer. Unknown fields are ignored; a field of another type is an error.
   *
   * @throws IllegalArgumentException if the message is not an answer to question {@code seq}
   */
  Answer(JsonNode message, long seq) {
    if (!message.path("type").asText().equals("answer") || message.path("seq").asLong(-1) != seq) {
      throw new IllegalArgumentException("no answer to question " + seq);
    }
    for (JsonNode stage : of(message, "stages", JsonNode::isArray)) {
      JsonNode slots = stage.path("slots");
      stages.put(count("stages: id", stage.path("id")),
          slots.isMissingNode() || slots.isNull() ? ALL : count("stages: slots", slots));
    }
    Iterator<Map.Entry<String, JsonNode>> fields = of(message, "limits", JsonNode::isObject).fields();
    while (fields.hasNext()) {
      Map.Entry<String, JsonNode> limit = fields.next();
      limits.put(limit.getKey(), count("limits: " + limit.getKey(), limit.getValue()));
    }
    String rest = message.path("rest").asText("fill");
    hold = rest.equals("hold");
    if (!hold && !rest.equals("fill")) {
      throw new IllegalArgumentException("rest is neither fill nor hold: " + rest);
    }
    decided = !message.hasNonNull("reason");
    JsonNode target = message.path("executors");
    executors = target.isMissingNode() || target.isNull() ? -1 : count("executors", target);
  }

  /** Named stages in order of priority. */
  Iterable<Integer> stages() {
    return stages.keySet();
  }

  boolean names(int stage) {
    return stages.containsKey(stage);
  }

  int slots(int stage) {
    return stages.getOrDefault(stage, ALL);
  }

  int limit(String job) {
    return limits.getOrDefault(job, ALL);
  }

  private interface Test {
    boolean holds(JsonNode node);
  }

  private static JsonNode of(JsonNode message, String field, Test test) {
    JsonNode node = message.path(field);
    if (!node.isMissingNode() && !test.holds(node)) {
      throw new IllegalArgumentException(field + " is of another type");
    }
    return node;
  }

  private static int count(String what, JsonNode node) {
    if (!node.isInt() || node.intValue() < 0) {
      throw new IllegalArgumentException(what + " is not a count: " + node);
    }
    return node.intValue();
  }
}
