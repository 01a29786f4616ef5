"""A plugin that cannot be loaded."""

raise RuntimeError("this plugin never starts")
