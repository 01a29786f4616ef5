//! Forwards calls to external services: HTTP/JSON by mapping, and upstream MCP servers.
//!
//! Keeps true: the client's token is never forwarded (I-8); a private address is reached only through an entry of the
//! snapshot's allow-list; an upstream that is down is cut off by a breaker for each server and never slows others.

mod http;
pub mod mcp;

pub use http::HttpBackend;
pub use mcp::McpBackend;
