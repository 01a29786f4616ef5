//! Forwards calls to external services: HTTP/JSON by mapping, upstream MCP servers, and remote A2A agents.
//!
//! Keeps true: the client's token is never forwarded (I-8); a private address is reached only through an entry of the
//! snapshot's allow-list; an upstream that is down is cut off by a breaker for each server and never slows others.

mod a2a;
mod http;
pub mod mcp;

pub use a2a::A2aBackend;
pub use http::HttpBackend;
pub use mcp::McpBackend;
