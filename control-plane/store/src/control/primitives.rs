//! Ids of primitives, and whose they are.

/// A server that may have a primitive under an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrimitiveServer {
    pub id: String,
    pub server: String,
    /// It stored the id first, or was granted it while it was nobody's; any other one is granted it.
    pub first: bool,
}

/// An id that a server may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedId {
    pub id: String,
    /// The server whose it is; `None`: the platform has withdrawn it.
    pub owner: Option<String>,
}

/// The ids of a server's primitives, and on whose word it has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerIds<'a> {
    pub ids: &'a [&'a str],
    /// The platform's word gives a server the ids of others too.
    pub by_platform: bool,
}
