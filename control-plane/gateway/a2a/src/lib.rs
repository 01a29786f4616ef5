//! The wire of A2A in both versions, 1.0.1 and 0.3, over JSON-RPC, REST and gRPC, for servers and for clients.
//!
//! Owns: neutral types ([`model`]), their forms on the wire ([`jsonrpc`], [`rest`], `grpc`), errors with their
//! mappings ([`error`]), agent cards with their signatures ([`card`]). Knows no call, no policy and no HTTP server. Refuses what
//! the specification calls invalid, with the fields at fault; every list, text and depth has a bound ([`bounds`]).
//!
//! Keeps true: metadata and data of users pass with their text (I-14) on every binding but gRPC, whose numbers are doubles; the
//! method, path or service that a request names decides its version, and the version header is checked afterwards ([`version`]).

pub mod bounds;
pub mod card;
pub mod error;
#[cfg(feature = "grpc")]
pub mod grpc;
mod json;
pub mod jsonrpc;
pub mod model;
mod names;
pub mod rest;
pub mod version;

pub use error::{A2aError, A2aFailure, FieldViolation};
pub use model::{
    A2aAnswer, Artifact, Base64, Message, Operation, OperationKind, Part, PartContent, PushAuthentication,
    PushConfig, PushPage, Request, Role, SendConfiguration, SendRequest, SendResult, StreamEvent, Task,
    TaskArtifactUpdate, TaskPage, TaskQuery, TaskState, TaskStatus, TaskStatusUpdate, Timestamp,
};
pub use version::Generation;
