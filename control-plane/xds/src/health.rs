//! Both ends of gRPC's health check, which reports whether this control plane has published what its store has.
//!
//! Answers everyone who reaches the port, because it reveals nothing about users. Envoys use it as their health check,
//! gateways once a second.

use std::time::Duration;

use asp_proto::health::health_check_response::ServingStatus;
use asp_proto::health::health_client::HealthClient;
use asp_proto::health::health_server::{Health, HealthServer};
use asp_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Result, Status};

use super::freshness::Freshness;
use super::published::XdsStateReceiver;

/// Longest wait for an answer.
const WITHIN: Duration = Duration::from_secs(1);

/// State of a control plane according to its health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Has published what its store has, or is of an earlier version without a health check.
    Fresh,
    /// Cannot read its store, or has no snapshot.
    Stale,
    /// Did not answer.
    Silent,
}

/// Checks the control plane at the other end.
pub(super) async fn check(channel: Channel) -> Condition {
    let mut client = HealthClient::new(channel);
    match tokio::time::timeout(WITHIN, client.check(HealthCheckRequest::default())).await {
        Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving => Condition::Fresh,
        Ok(Ok(_)) => Condition::Stale,
        Ok(Err(status)) if status.code() == Code::Unimplemented => Condition::Fresh,
        Ok(Err(_)) | Err(_) => Condition::Silent,
    }
}

/// Returns the control plane's end.
pub(super) fn service(freshness: Freshness, xds_state: XdsStateReceiver) -> HealthServer<impl Health> {
    HealthServer::new(HealthService { freshness, xds_state })
}

struct HealthService {
    freshness: Freshness,
    xds_state: XdsStateReceiver,
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>> {
        if !request.get_ref().service.is_empty() {
            return Err(Status::not_found("single services have no health status; leave the name empty"));
        }
        let has_snapshot = self.xds_state.borrow().snapshot.is_some();
        let status = match has_snapshot && !self.freshness.is_stale() {
            true => ServingStatus::Serving,
            false => ServingStatus::NotServing,
        };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }
}
