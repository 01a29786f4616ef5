//! Between whom a tap lies.

/// Who talks through a tap.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub client: &'static str,
    pub server: &'static str,
    /// Whether a client may be wrong as long as it is refused, and what is served here counts as served.
    pub at_the_edge: bool,
}

impl Link {
    /// Before Envoy.
    pub const EDGE: Link = Link { client: "a client", server: "the gateway", at_the_edge: true };
    /// Between the MCP backend and a service.
    pub const UPSTREAM: Link = Link { client: "the gateway", server: "an upstream", at_the_edge: false };
}
