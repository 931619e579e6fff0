"""Scenarios on a whole Kubernetes: the real chart and images, broken as the world would."""
