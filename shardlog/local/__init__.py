"""A cluster on one machine, with no services: node processes, a coordinator and a directory."""
