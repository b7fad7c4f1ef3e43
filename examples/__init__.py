"""Programs that use the library: each file has a `main()` and runs on CPU and GPU."""
