"""The local stack: every process of Headrace as a child of `headrace up`."""
