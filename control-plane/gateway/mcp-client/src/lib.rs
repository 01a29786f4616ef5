//! A client of MCP servers over Streamable HTTP, in both eras, and over the lines of stdio servers. It is this project's own, so
//! that it passes JSON as it was written (I-14, ADR 19).
//!
//! Owns: the handshake, the requests of a session and what a server asks within them, and the lists of a server. Refuses:
//! knowledge of calls; who uses it answers what a server asks.

pub mod client;
pub mod lines;
pub mod listing;
pub mod message;
