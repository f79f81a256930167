"""The plugin that a Spark driver loads: the compiled jar, and how it is compiled."""

from decima.service.plugin.jar import JAR, PluginError, build

__all__ = ["JAR", "PluginError", "build"]
