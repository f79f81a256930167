package decima.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** What the policy said: which stages come first, and how much may run at once. */
final class Answer {
  /** No limit. */
  static final int ALL = Integer.MAX_VALUE;

  /** Stage to the tasks of it that may run at once, the first ones first. */
  private final Map<Integer, Integer> stages = new LinkedHashMap<>();
  private final Map<String, Integer> limits = new HashMap<>();
  /** Stages that are not named: held back, or launched after the others. */
  final boolean hold;
  /** That the application shall have; -1: as it is. */
  final int executors;

  /**
   * Fields that nobody here knows are passed over, what is of another type is not.
   *
   * @throws IllegalArgumentException if this is no answer to question {@code seq}
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
    JsonNode target = message.path("executors");
    executors = target.isMissingNode() || target.isNull() ? -1 : count("executors", target);
  }

  /** Stages that are named, the first ones first. */
  Iterable<Integer> stages() {
    return stages.keySet();
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
