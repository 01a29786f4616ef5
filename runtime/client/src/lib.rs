//! A client of plugin runtimes: which of them there are, the choice among them, and tunnels to their workers.
//!
//! Owns: the connections, and the one stream that all tunnels to a runtime share. Refuses: knowledge of calls; the owner of a
//! tunnel's work interprets the messages. Keeps true: however a tunnel ends, its worker's place is returned.

pub mod admission;
pub mod multiplexer;
pub mod runtimes;
pub mod tunnel;
