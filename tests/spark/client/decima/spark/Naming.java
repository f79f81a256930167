package decima.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;

/** Prints the name of a job after each description, given as {@code query:TEXT} or {@code job:TEXT}, for a test. */
final class Naming {
  public static void main(String[] descriptions) {
    Job job = new Job("sql-0", "sql-0", 0);
    for (String each : descriptions) {
      job.describe(each.substring(each.indexOf(':') + 1), each.startsWith("query:"));
      ObjectNode out = new ObjectMapper().createObjectNode();
      job.write(out, 0, new HashMap<>(), false);
      System.out.println(out.get("name").asText());
    }
  }
}
