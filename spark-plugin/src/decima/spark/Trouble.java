package decima.spark;

import java.util.HashSet;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Logs errors of the plugin's own code. Spark calls this code in threads in which an {@code Error} would end the scheduler, the
 * listener bus or the application. So each method that Spark calls catches {@code Throwable}, and Spark continues.
 */
class Trouble {
  private static final Logger LOG = LoggerFactory.getLogger("decima.spark");

  private final Set<String> said = new HashSet<>();

  /** Logs the first error of each class as a warning with its stack trace, and later ones at DEBUG. */
  synchronized void warn(String what, Throwable why) {
    if (why instanceof InterruptedException) {
      Thread.currentThread().interrupt();
    }
    if (said.add(what + why.getClass().getName())) {
      LOG.warn(what, why);
    } else {
      LOG.debug(what, why);
    }
  }
}
