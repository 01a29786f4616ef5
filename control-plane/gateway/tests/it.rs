//! The gateway through its router: real specs, real tokens, real HTTP bodies; no network.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "it/runtime.rs"]
mod runtime;
#[path = "it/support.rs"]
mod support;

#[path = "it/a2a.rs"]
mod a2a;
#[path = "it/a2a_card.rs"]
mod a2a_card;
#[path = "it/all_servers.rs"]
mod all_servers;
#[path = "it/approval.rs"]
mod approval;
#[path = "it/approvals.rs"]
mod approvals;
#[path = "it/apps.rs"]
mod apps;
#[path = "it/audit.rs"]
mod audit;
#[path = "it/certificates.rs"]
mod certificates;
#[path = "it/completion.rs"]
mod completion;
#[path = "it/cut_off.rs"]
mod cut_off;
#[path = "it/delegates.rs"]
mod delegates;
#[path = "it/edge.rs"]
mod edge;
#[path = "it/failure_log.rs"]
mod failure_log;
#[path = "it/follower.rs"]
mod follower;
#[path = "it/gate.rs"]
mod gate;
#[path = "it/home.rs"]
mod home;
#[path = "it/hosted.rs"]
mod hosted;
#[path = "it/idempotency.rs"]
mod idempotency;
#[path = "it/issuers.rs"]
mod issuers;
#[path = "it/last_event_id.rs"]
mod last_event_id;
#[path = "it/legacy.rs"]
mod legacy;
#[path = "it/limits.rs"]
mod limits;
#[path = "it/listen.rs"]
mod listen;
#[path = "it/login.rs"]
mod login;
#[path = "it/machines.rs"]
mod machines;
#[path = "it/messages.rs"]
mod messages;
#[path = "it/modern.rs"]
mod modern;
#[path = "it/one_pipeline.rs"]
mod one_pipeline;
#[path = "it/outage.rs"]
mod outage;
#[path = "it/pages.rs"]
mod pages;
#[path = "it/plugin.rs"]
mod plugin;
#[path = "it/proxy.rs"]
mod proxy;
#[path = "it/records.rs"]
mod records;
#[path = "it/refused.rs"]
mod refused;
#[path = "it/registry.rs"]
mod registry;
#[path = "it/rest.rs"]
mod rest;
#[path = "it/revocation.rs"]
mod revocation;
#[path = "it/rules.rs"]
mod rules;
#[path = "it/search.rs"]
mod search;
#[path = "it/server_list.rs"]
mod server_list;
#[path = "it/stateless.rs"]
mod stateless;
#[path = "it/subscriptions.rs"]
mod subscriptions;
#[path = "it/trace.rs"]
mod trace;
#[path = "it/usage.rs"]
mod usage;
#[path = "it/visibility.rs"]
mod visibility;
