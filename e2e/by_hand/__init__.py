"""What people do by hand, done by the scripts that they are given."""
