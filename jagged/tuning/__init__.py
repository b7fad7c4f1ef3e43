"""The choice of a kernel's configuration at run time, and the launch of a kernel with it."""
