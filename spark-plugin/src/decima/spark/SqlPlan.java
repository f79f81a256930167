package decima.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The physical plan of a SQL query before it runs: its operators, and the exchanges from which adaptive
 * execution will create stages.
 */
final class SqlPlan {
  /** Matches the last number in "hashpartitioning(k#1L, 200)"; column names may contain anything. */
  private static final Pattern PARTITIONS = Pattern.compile("[pP]artitioning\\((?:.*, ?)?(\\d+)\\)");
  static final int LONGEST_NAME = 1024;

  /** Names of the operators, each before its children. */
  private final ArrayNode operators = JsonNodeFactory.instance.arrayNode();
  private final ArrayNode exchanges = JsonNodeFactory.instance.arrayNode();
  /** Description of each exchange, which identifies reused exchanges. */
  private final Map<String, Integer> texts = new LinkedHashMap<>();
  /** Shuffles without a parent shuffle under adaptive execution, whose stages are created first. */
  final int first;
  /** Operators and exchanges as JSON, cached since each question contains them. */
  final String operatorsJson;
  final String exchangesJson;

  /** @param root Spark's SparkPlanInfo, read by reflection because its Scala collections differ between versions */
  SqlPlan(Object root) throws ReflectiveOperationException {
    visit(root);
    int free = 0;
    for (JsonNode each : exchanges) {
      free += each.path("parents").isEmpty() && !each.path("kind").asText().contains("Broadcast") ? 1 : 0;
    }
    boolean adaptive = false;
    for (JsonNode each : operators) {
      adaptive |= each.asText().equals("AdaptiveSparkPlan");
    }
    first = adaptive ? free : 0;
    operatorsJson = operators.toString();
    exchangesJson = exchanges.toString();
  }

  /** Adds an operator and its descendants, and returns the exchanges that the operator's parent reads. */
  private TreeSet<Integer> visit(Object node) throws ReflectiveOperationException {
    String name = (String) Reflect.get(node, "nodeName");
    String text = (String) Reflect.get(node, "simpleString");
    operators.add(cut(name, LONGEST_NAME));
    TreeSet<Integer> below = new TreeSet<>();
    for (Object child : Reflect.list(Reflect.get(node, "children"))) {
      below.addAll(visit(child));
    }
    if (name.equals("ReusedExchange")) {
      for (Map.Entry<String, Integer> each : texts.entrySet()) {
        if (text.endsWith(each.getKey())) {
          below.add(each.getValue());
        }
      }
      return below;
    }
    if (!name.endsWith("Exchange")) {
      return below;
    }
    int id = exchanges.size();
    texts.put(text, id);
    ObjectNode out = exchanges.addObject().put("id", id).put("kind", cut(name, LONGEST_NAME));
    Integer partitions = partitions(text);
    out.put("partitions", partitions);
    List<Integer> parents = new ArrayList<>(below);
    parents.forEach(out.putArray("parents")::add);
    below.clear();
    below.add(id);
    return below;
  }

  /**
   * Returns the operators that Spark compiles into one function, each before its children, by the name of the function
   * (<code>WholeStageCodegen (n)</code>), which is the scope of its RDD. If a query and its subqueries have the same
   * name, the first one counts.
   */
  static Map<String, List<String>> compiled(Object root) throws ReflectiveOperationException {
    Map<String, List<String>> all = new HashMap<>();
    compiled(root, null, all);
    return all;
  }

  private static void compiled(Object node, List<String> inside, Map<String, List<String>> all)
      throws ReflectiveOperationException {
    String name = (String) Reflect.get(node, "nodeName");
    if (name.startsWith("WholeStageCodegen")) {
      inside = new ArrayList<>();
      all.putIfAbsent(name, inside);
    } else if (name.startsWith("InputAdapter") || name.startsWith("Subquery") || name.startsWith("ReusedSubquery")) {
      inside = null;
    } else if (inside != null) {
      inside.add(cut(name, LONGEST_NAME));
    }
    for (Object child : Reflect.list(Reflect.get(node, "children"))) {
      compiled(child, inside, all);
    }
  }

  private static Integer partitions(String text) {
    Matcher found = PARTITIONS.matcher(text);
    try {
      return found.find() ? Integer.valueOf(found.group(1)) : text.contains("SinglePartition") ? 1 : null;
    } catch (NumberFormatException e) {
      return null;
    }
  }

  static String cut(String text, int longest) {
    return text.length() <= longest ? text : text.substring(0, longest);
  }
}
