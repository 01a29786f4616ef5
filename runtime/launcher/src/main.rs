//! `worker-init`: builds the sandbox around itself and becomes the worker.

fn main() {}
