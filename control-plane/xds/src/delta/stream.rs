//! One gateway's stream: acknowledgements in, changes out.

use std::sync::Arc;

use asp_proto::xds::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::{Result, Streaming};

use super::DeltaSubscription;
use crate::context::{Context, STOPPING, end_stream, next_request};
use crate::contract::{IN_FORCE, Kind, LEAVING};
use crate::peer::Caller;
use crate::presence::Presence;
use crate::published::XdsStateReceiver;
use crate::subscribers::{OVERDUE, Participant, metadata};
use crate::subscription::Event;

/// Maximum number of messages queued for a slow gateway.
const OUTBOUND: usize = 1;

type PushResult = Result<DeltaDiscoveryResponse>;

/// Serves one stream in a task of its own.
pub fn serve(
    context: &Context,
    inbound: Streaming<DeltaDiscoveryRequest>,
    caller: Caller,
) -> Result<mpsc::Receiver<PushResult>> {
    let other = Participant::admit(&context.subscribers, &context.seen_revisions, caller)?;
    let (outbound, receiver) = mpsc::channel(OUTBOUND);
    let stream = DeltaStream {
        xds_state: context.xds_state.clone(),
        other,
        presence: Presence::new(Arc::clone(&context.endpoints)),
        subscription: DeltaSubscription::default(),
        overdue_at: None,
    };
    let stop = context.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            // A stream ends without an error only for a gateway that announced its shutdown.
            () = stop.cancelled() => end_stream(&outbound, STOPPING),
            () = stream.run(inbound, outbound.clone()) => {}
        }
    });
    Ok(receiver)
}

struct DeltaStream {
    xds_state: XdsStateReceiver,
    other: Participant,
    presence: Presence,
    subscription: DeltaSubscription,
    /// Time at which the unanswered push becomes overdue; `None` if there is none, or it already is.
    overdue_at: Option<Instant>,
}

impl DeltaStream {
    async fn run(
        mut self,
        mut inbound: Streaming<DeltaDiscoveryRequest>,
        outbound: mpsc::Sender<PushResult>,
    ) {
        let mut is_open = false;
        loop {
            if !self.push(&outbound).await {
                return;
            }
            let overdue_at = self.overdue_at;
            tokio::select! {
                request = next_request(&mut inbound, &self.other.node.id) => {
                    let Some(request) = request else { return };
                    if let Err(status) = self.on_request(request, &mut is_open).await {
                        // The receiver may be gone already.
                        let _ = outbound.send(Err(status)).await;
                        return;
                    }
                    if self.presence.has_left() {
                        return;
                    }
                }
                changed = self.xds_state.changed() => if changed.is_err() { return end_stream(&outbound, STOPPING) },
                () = sleep_until(overdue_at.unwrap_or_else(Instant::now)), if overdue_at.is_some() => {
                    self.overdue_at = None;
                    self.presence.overdue(&self.other.node);
                }
            }
        }
    }

    /// Sends the push that is due; returns false if the stream is gone.
    async fn push(&mut self, outbound: &mpsc::Sender<PushResult>) -> bool {
        let xds_state = self.xds_state.borrow_and_update().clone();
        let Some(push) = self.subscription.next_push(&xds_state) else {
            if let Some(refusal) = self.subscription.take_refusal() {
                self.other.refused(Kind::Gateway, refusal);
            }
            return true;
        };
        self.other.entry.pushed(Kind::Gateway, push.revision());
        for message in push.messages() {
            if outbound.send(Ok(message)).await.is_err() {
                return false;
            }
        }
        self.overdue_at = Some(Instant::now() + OVERDUE);
        true
    }

    async fn on_request(&mut self, mut request: DeltaDiscoveryRequest, is_open: &mut bool) -> Result<()> {
        if let Some(node) = request.node.take() {
            self.other.name(node, *is_open)?;
        }
        if request.type_url != Kind::Gateway.type_url() {
            // ADS clients may ask for types that this server does not have; the protocol's answer is silence.
            return Ok(());
        }
        if !std::mem::replace(is_open, true) {
            self.other.authorize(Kind::Gateway).await?;
        }
        if metadata(&self.other.node, LEAVING).is_some() {
            self.presence.leave(&self.other.node);
            return Ok(());
        }
        let version = metadata(&self.other.node, IN_FORCE).unwrap_or_default().to_owned();
        let event = self.subscription.on_request(request, &version);
        if matches!(event, Event::Acknowledged { .. } | Event::Rejected { .. }) {
            self.overdue_at = None;
            self.presence.answered();
        }
        // Whether the gateway has a snapshot, this one or an earlier one.
        let has_snapshot = matches!(event, Event::Acknowledged { .. }) || !version.is_empty();
        self.other.note(Kind::Gateway, event, (self.subscription.in_force(), self.subscription.version()))?;
        if has_snapshot {
            self.presence.join(&self.other.node);
        }
        Ok(())
    }
}
