"""What the end-to-end and fault tests share: real processes, real mounts, real network namespaces."""
