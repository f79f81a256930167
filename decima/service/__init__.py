"""What a live Spark talks to: it reports its jobs, and is told which stage runs next on how many task slots."""
