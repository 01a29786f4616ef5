//! Requests wait while a session changes specs and code.

use std::sync::Arc;

use axum::body::Body;
use http::{Request, StatusCode};
use tokio::sync::RwLock;
use tower::ServiceExt;

use crate::support::Fixture;

#[tokio::test]
async fn a_request_waits_while_the_gate_is_held() {
    let fixture = Fixture::new();
    let gate = Arc::new(RwLock::new(()));
    let router = asp_gateway::http::gated_router(fixture.gateway.clone(), gate.clone());
    let held = gate.write().await;
    let request = Request::builder().uri("/healthz").body(Body::empty()).unwrap();
    let mut answer = std::pin::pin!(router.oneshot(request));
    assert!(futures::poll!(answer.as_mut()).is_pending(), "it was served");
    drop(held);
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
}
