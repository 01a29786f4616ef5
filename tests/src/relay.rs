//! A way from gateways to a control plane, on which the control plane can be made a newer one: beside what it sends, gateways get
//! a part of a kind, and a value of an enumeration, that no version knows.
//!
//! Owns: the names that the relay adds. Keeps true: the control plane does not hear of them. Serves what gateways need to follow
//! a snapshot, and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use asp_proto::snapshot::{Binding, OrgPart, SnapshotPart, snapshot_part::Part};
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use asp_proto::xds::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use prost::Message;
use prost_types::Any;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

use crate::xds::GATEWAY_TYPE;

/// The part of an unknown kind. It says that it needs to be known, so that gateways name it among the refused parts.
pub const UNKNOWN_PART: &str = "quota/acme";
/// The part in which a binding has a target of an unknown kind. The org has no other part: it has stored nothing.
const KNOWN_PART: &str = "org/acme";
const ORG: &str = "acme";
/// A value that the enumeration does not have.
const UNKNOWN_KIND: i32 = 99;
/// Field 60 of a part, empty: an alternative that `SnapshotPart.part` does not have.
const UNKNOWN_FIELD: [u8; 3] = [0xe2, 0x03, 0x00];
/// Largest message, as of gateways.
const MAX_MESSAGE: usize = 65 * 1024 * 1024;

/// A running relay; it ends when dropped.
pub struct Relay {
    pub address: SocketAddr,
    is_newer: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Starts one before the control plane at this address.
    pub async fn start(target: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let is_newer = Arc::new(AtomicBool::new(false));
        let service = Service { target, is_newer: Arc::clone(&is_newer) };
        let task = tokio::spawn(async move {
            let service =
                AggregatedDiscoveryServiceServer::new(service).max_decoding_message_size(MAX_MESSAGE);
            let server = tonic::transport::Server::builder().add_service(service);
            if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
                eprintln!("relay of the harness: {error}");
            }
        });
        Ok(Relay { address, is_newer, task })
    }

    /// Whether streams that are opened from now on are of a newer control plane.
    pub fn set_newer(&self, is_newer: bool) {
        self.is_newer.store(is_newer, Ordering::Release);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Service {
    target: SocketAddr,
    is_newer: Arc<AtomicBool>,
}

type Push = Result<DeltaDiscoveryResponse, Status>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = ReceiverStream<Push>;

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (pushes, stream) = mpsc::channel(1);
        let service = self.clone();
        tokio::spawn(async move {
            if let Err(status) = service.relay(request.into_inner(), &pushes).await {
                // Err: the gateway has gone.
                let _ = pushes.send(Err(status)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn stream_aggregated_resources(
        &self,
        _request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("this relay is for gateways"))
    }
}

impl Service {
    /// Relays one stream until the control plane, or the gateway without a word, ends it.
    async fn relay(
        &self,
        mut inbound: Streaming<DeltaDiscoveryRequest>,
        pushes: &mpsc::Sender<Push>,
    ) -> Result<(), Status> {
        let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let target = Endpoint::from_shared(format!("http://{}", self.target)).map_err(unavailable)?;
        let channel = target.connect().await.map_err(unavailable)?;
        let mut control =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
        let (requests, receiver) = mpsc::channel(1);
        let mut outbound =
            control.delta_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
        let mut requests = Some(requests);
        let is_newer = self.is_newer.load(Ordering::Acquire);
        let mut added = if is_newer { newer_parts() } else { Vec::new() };
        loop {
            tokio::select! {
                request = inbound.message(), if requests.is_some() => match request? {
                    Some(mut request) => {
                        if is_newer {
                            let versions = &mut request.initial_resource_versions;
                            versions.retain(|name, _| name != UNKNOWN_PART && name != KNOWN_PART);
                        }
                        if let Some(requests) = &requests && requests.send(request).await.is_err() {
                            return Err(Status::unavailable("the control plane ended the stream"));
                        }
                    }
                    // It reads on until the control plane has ended the stream, too.
                    None => requests = None,
                },
                push = outbound.message() => {
                    let Some(mut push) = push? else { return Ok(()) };
                    // The last message of a revision.
                    if !push.system_version_info.is_empty() {
                        push.resources.append(&mut added);
                    }
                    if pushes.send(Ok(push)).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

fn newer_parts() -> Vec<Resource> {
    let unknown = SnapshotPart { part: None, needs: vec!["quota".to_owned()] };
    let mut unknown = unknown.encode_to_vec();
    unknown.extend(UNKNOWN_FIELD);
    let binding = Binding {
        org: ORG.to_owned(),
        target_kind: UNKNOWN_KIND,
        target: "*".to_owned(),
        primitive: "newer.*".to_owned(),
        ..Binding::default()
    };
    let part = OrgPart { org: ORG.to_owned(), bindings: vec![binding], ..OrgPart::default() };
    let known = SnapshotPart { part: Some(Part::Org(part)), needs: Vec::new() };
    let resource = |name: &str, value: Vec<u8>| Resource {
        version: "newer".to_owned(),
        resource: Some(Any { type_url: GATEWAY_TYPE.to_owned(), value }),
        name: name.to_owned(),
    };
    vec![resource(UNKNOWN_PART, unknown), resource(KNOWN_PART, known.encode_to_vec())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_unknown_to_this_version() {
        let parts: Vec<SnapshotPart> = newer_parts()
            .into_iter()
            .map(|part| SnapshotPart::decode(part.resource.unwrap().value.as_slice()).unwrap())
            .collect();
        assert!(parts[0].part.is_none() && asp_snapshot::parts::unknown_need(&parts[0]).is_some());
        let Some(Part::Org(org)) = &parts[1].part else { panic!("a part of an org") };
        assert!(asp_proto::snapshot::TargetKind::try_from(org.bindings[0].target_kind).is_err());
    }
}
