"""Speed, measured as ratios in one run on one machine."""
