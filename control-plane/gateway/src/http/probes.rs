//! Probes and metrics, which are open to all: `/healthz`, `/readyz` and `/metrics`.
//!
//! Keeps true: they carry nothing about users or calls of one org.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};

use crate::gateway::Gateway;

/// Returns the routes that need no evaluation.
pub(super) fn open_to_all() -> axum::Router<Arc<Gateway>> {
    axum::Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

/// Answers a request that is not for this port.
pub(super) async fn misdirected() -> (StatusCode, &'static str) {
    (
        StatusCode::MISDIRECTED_REQUEST,
        "this plaintext port serves only /healthz, /readyz and /metrics; requests must come from an Envoy by \
         mutual TLS (ASP_GATEWAY_MTLS_PORT)\n",
    )
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.unready() {
        None => Response::new(Body::from("ready\n")),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, Body::from(format!("{reason}\n"))).into_response(),
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], gateway.metrics().encode()).into_response()
}
