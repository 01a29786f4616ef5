//! Bounds of what is read, on every binding. The size of a whole message is the bound of whoever receives it.

/// Maximum length of an id (task, context, message, artifact, push configuration, tenant), in bytes.
pub const MAX_ID: usize = 256;
/// Maximum length of the id of a JSON-RPC message, in bytes of JSON text, as at the edge.
pub const MAX_RPC_ID: usize = 1024;
/// Maximum length of a resource name of 0.3, which has the ids of a task and of a push configuration, in bytes.
pub const MAX_RESOURCE_NAME: usize = 2 * MAX_ID + 64;
/// Maximum number of parts of one message or artifact.
pub const MAX_PARTS: usize = 256;
/// Maximum number of artifacts or messages of one task, of tasks or push configurations of one page.
pub const MAX_ITEMS: usize = 10_000;
/// Maximum number of media types, extensions, referenced tasks or authentication schemes in one list.
pub const MAX_LISTED: usize = 64;
/// Maximum length of a name, a file name, a media type or an authentication scheme, in bytes.
pub const MAX_NAME: usize = 512;
/// Maximum length of a URL, in bytes.
pub const MAX_URL: usize = 2048;
/// Maximum length of a page token or a credential, in bytes.
pub const MAX_TOKEN: usize = 4096;
/// Maximum number of tasks in a page (A2A 1.0, section 3.1.4).
pub const MAX_PAGE: i32 = 100;
/// Maximum number of field violations that a refusal lists.
pub const MAX_VIOLATIONS: usize = 16;
/// Maximum nesting of data and metadata over gRPC: a level of an object takes three messages there, and readers of protocol
/// buffers stop at 100. JSON nests up to [`asp_json::MAX_DEPTH`].
pub const MAX_GRPC_DEPTH: usize = 28;
