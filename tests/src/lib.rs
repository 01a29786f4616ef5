//! The end-to-end harness: starts the built binaries and real Envoy on free ports, and ends them.
//!
//! Owns: processes and their logs, rendering of Envoy's configuration, an xDS server of its own, raw HTTP.
//! Refuses: skipping. A missing binary or tool is an error that says what is missing.
//! Keeps true: no fixed port, no state outside a temporary directory, every started process is ended by
//! its own id, every wait has a bound.

pub mod agent;
pub mod audited;
pub mod browser;
pub mod caller;
pub mod chromium;
pub mod cluster;
pub mod connect_proxy;
pub mod cut;
pub mod envoy;
pub mod figures;
pub mod fleet;
pub mod history;
pub mod http1;
pub mod http2;
pub mod insertion;
pub mod journal;
pub mod kafka;
pub mod keycloak;
pub mod kms;
pub mod message;
pub mod model;
pub mod object_store;
pub mod partition;
pub mod port;
pub mod process;
pub mod push_receiver;
pub mod recorder;
pub mod relay;
pub mod report;
pub mod resumption;
pub mod revoking;
pub mod runtime;
pub mod spread;
pub mod stack;
pub mod stepped_clock;
pub mod stores;
pub mod tap;
pub mod tls_tunnel;
pub mod tool;
pub mod trap;
pub mod wait;
pub mod wire;
pub mod works;
pub mod writers;
pub mod xds;
