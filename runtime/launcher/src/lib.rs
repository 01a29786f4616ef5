//! What a worker's sandbox is made of.
