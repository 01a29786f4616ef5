//! Subscribers that are gateways to a control plane: they acknowledge what comes, and keep its version alone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use asp_proto::xds::envoy::config::core::v3::Node;
use asp_proto::xds::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

const TYPE: &str = "type.googleapis.com/asp.snapshot.v1.SnapshotPart";
/// As a gateway takes them.
const MAX_MESSAGE: usize = 65 * 1024 * 1024;

/// What one has heard.
#[derive(Clone, Debug, Default)]
struct Heard {
    version: String,
    bytes: u64,
    at: Option<Instant>,
}

/// All of them; dropping it ends them.
pub(super) struct Stubs {
    heard: Vec<watch::Receiver<Heard>>,
    began: Instant,
    _tasks: JoinSet<Result<()>>,
}

impl Stubs {
    /// Connects so many at once.
    pub(super) async fn connect(xds_port: u16, count: usize) -> Result<Stubs> {
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        let mut heard = Vec::new();
        for number in 0..count {
            let (told, watched) = watch::channel(Heard::default());
            heard.push(watched);
            tasks.spawn(follow(xds_port, number, told));
        }
        Ok(Stubs { heard, began, _tasks: tasks })
    }

    /// Waits until each has everything; how long the slowest took, in milliseconds.
    pub(super) async fn synced(&mut self, bound: Duration) -> Result<f64> {
        let last = self.beyond("", bound).await?;
        Ok(last.saturating_duration_since(self.began).as_secs_f64() * 1000.0)
    }

    /// Waits until each has another version than this one; when the last one had it.
    pub(super) async fn beyond(&mut self, version: &str, bound: Duration) -> Result<Instant> {
        let mut last = self.began;
        for heard in &mut self.heard {
            let news = tokio::time::timeout(bound, heard.wait_for(|heard| heard.version != version));
            let news = news.await.context("a subscriber heard nothing")?.context("a subscriber ended")?;
            last = last.max(news.at.unwrap_or(last));
        }
        Ok(last)
    }

    /// What the first has.
    pub(super) fn version(&self) -> String {
        self.heard.first().map(|heard| heard.borrow().version.clone()).unwrap_or_default()
    }

    /// What each was sent so far.
    pub(super) fn bytes(&self) -> Vec<u64> {
        self.heard.iter().map(|heard| heard.borrow().bytes).collect()
    }

    pub(super) fn most_bytes(&self) -> u64 {
        self.bytes().into_iter().max().unwrap_or_default()
    }
}

async fn follow(xds_port: u16, number: usize, told: watch::Sender<Heard>) -> Result<()> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{xds_port}"))?;
    let client = AggregatedDiscoveryServiceClient::new(endpoint.connect().await?);
    let mut client = client.max_decoding_message_size(MAX_MESSAGE);
    let (requests, receiver) = mpsc::channel(1);
    let node = Node { id: format!("subscriber-{number}"), ..Node::default() };
    let request = || DeltaDiscoveryRequest { type_url: TYPE.into(), ..DeltaDiscoveryRequest::default() };
    let first =
        DeltaDiscoveryRequest { node: Some(node), resource_names_subscribe: vec!["*".into()], ..request() };
    requests.send(first).await?;
    let mut pushes = client.delta_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
    while let Some(push) = pushes.message().await? {
        let is_last = !push.system_version_info.is_empty();
        let (bytes, version) = (push.encoded_len() as u64, push.system_version_info);
        told.send_modify(|heard| {
            heard.bytes += bytes;
            if is_last {
                (heard.version, heard.at) = (version, Some(Instant::now()));
            }
        });
        if is_last {
            requests.send(DeltaDiscoveryRequest { response_nonce: push.nonce, ..request() }).await?;
        }
    }
    bail!("the control plane ended the stream of subscriber {number}")
}
