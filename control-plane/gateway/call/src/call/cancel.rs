//! The clocks of a cancel: the end of a call before its backend has answered.
//!
//! Owns: the time of the pipeline. Those of the other parts lie beside the code that keeps them.
//!
//! A call is cancelled by its client, its deadline, a revocation, or the stop of its gateway. From then on:
//!
//! | part | time | what it does | where |
//! |---|---|---|---|
//! | pipeline | [`BACKEND_STOPS_WITHIN`] | waits for the backend's own end, then drops it; the caller has its answer | `pipeline/src/pipeline/execute.rs` |
//! | plugin backend | at once | sends `CancelRequest` (hard) to the worker of a tool or task; a read or prompt closes its tunnel instead | `backends/src/plugin/session.rs`, `reads.rs` |
//! | plugin backend, dropped | at once | closes the tunnel | `runtime/client/src/lease.rs` |
//! | runtime | `CANCEL_GRACE`, 2 s | waits for the end of the call, then kills the worker's process | `runtime/supervisor/src/tunnel/work.rs` |
//! | runtime, stalled | `PATIENCE`, at most 15 s more | extends this while another call blocks the worker's stream | `runtime/supervisor/src/tunnel/grace.rs` |
//! | MCP backend | `FAREWELL`, 2 s | sends `notifications/cancelled`, or closes the response to an upstream of 2026-07-28 | `mcp-client/src/client.rs` |
//! | hosted backend | `PAUSES` and `LONGEST`: 3 requests of at most 2 s each | sends `POST …/cancel` until the service takes it | `backends/src/hosted/cancel.rs` |
//! | HTTP backend | at once | closes the connection's request | `backends/src/proxy/http.rs` |
//!
//! A runtime may hear of one cancel twice: by the message, and by the end of the tunnel. Its worker gets one `CancelRequest` and
//! one grace.

use std::time::Duration;

/// Time in which a backend returns by itself after a cancel or at the deadline; then it is dropped.
pub const BACKEND_STOPS_WITHIN: Duration = Duration::from_millis(100);
