"""Studies of drafters: comparisons, replay, tuning, synthetic acceptance and checks of pairs."""
