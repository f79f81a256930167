"""The service behind ``decima serve``: Spark drivers report their jobs and receive stages to run and slot limits."""
