//! Ids of primitives and the servers that own them.

/// A server that may have a primitive under an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrimitiveServer {
    pub id: String,
    pub server: String,
    /// Whether the server owns the id: it stored it first, or was granted it while it had no owner. Other servers are
    /// granted it.
    pub first: bool,
}

/// An id that a server may not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedId {
    pub id: String,
    /// Server that owns it; `None`: the platform has withdrawn it.
    pub owner: Option<String>,
}

/// Ids of a server's primitives, and the authority for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerIds<'a> {
    pub ids: &'a [&'a str],
    /// Whether the platform writes, which may give a server the ids of others.
    pub by_platform: bool,
}
