"""From a kernel's source to code for the CPU or a GPU."""
