//! One stream to a plugin's worker, from the first subscriber to the last.
//!
//! Keeps true: the pause between two streams doubles as long as they do not last; changes are passed on at most ten
//! times a second; a plugin that does not watch is asked again only after the next snapshot.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::pauses::doubling;
use asp_proto::envelope::packed;
use asp_proto::plugin::SubscribeRequest;
use asp_proto::plugin::server_message::Payload;
use asp_proto::supervisor::{AllocateWorkerRequest, TunnelEvent, tunnel_event};
use asp_runtime_client::admission::Rejection;
use asp_runtime_client::tunnel::{OpenFault, Tunnel, TunnelFault, TunnelMessage};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::{FollowedResource, InForce, MAX_URI};
use crate::plugin::availability::{PluginLocation, unopened};
use crate::plugin::reads::UNSUPPORTED;
use crate::plugin::reference::called_as;

/// Pause after a stream; it doubles up to the longest after each stream that was shorter than that.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum duration of a stream; its runtime has a limit of its own.
const LONGEST: Duration = Duration::from_secs(3600);
/// Minimum interval between passing on changes, and the maximum number of changed resources per interval in addition
/// to the subscribed one.
const BETWEEN: Duration = Duration::from_millis(100);
const MAX_CHANGED: usize = 100;

pub(super) struct Task {
    followed: Arc<FollowedResource>,
    place: PluginLocation,
    in_force: watch::Receiver<Arc<InForce>>,
    /// A stream that opens now may have missed changes.
    missed: bool,
    /// The runtime has no place for the stream, and this was logged.
    is_full: bool,
}

/// Reason why a stream ended.
enum WatchEnd {
    /// The plugin watches nothing.
    Unsupported(String),
    /// Its runtime has no place for the stream.
    Full,
    /// The plugin is not in force any more.
    Gone,
    Ended(String),
}

/// Changes that a stream has reported and that are not passed on yet.
struct ReportedChanges {
    uris: HashSet<String>,
    /// Earliest time to pass them on.
    next: Instant,
    /// Whether it was logged that changes were dropped.
    is_warned: bool,
}

impl Task {
    pub(super) fn of(
        followed: Arc<FollowedResource>,
        place: PluginLocation,
        in_force: watch::Receiver<Arc<InForce>>,
    ) -> Task {
        Task { followed, place, in_force, missed: false, is_full: false }
    }

    pub(super) async fn run(mut self) {
        let mut pauses = doubling(PAUSE, LONGEST_PAUSE);
        loop {
            let began = Instant::now();
            let over = if self.is_in_force() { self.stream().await } else { WatchEnd::Gone };
            self.missed = true;
            let primitive = &self.followed.primitive;
            match over {
                WatchEnd::Unsupported(why) => {
                    tracing::warn!(
                        primitive,
                        why,
                        "a plugin does not watch, although its spec says `watched: plugin`: subscribers are not notified of changes; implement the hook"
                    );
                    self.another_snapshot().await;
                    continue;
                }
                WatchEnd::Gone => {
                    self.another_snapshot().await;
                    continue;
                }
                WatchEnd::Full => {
                    if !std::mem::replace(&mut self.is_full, true) {
                        tracing::warn!(
                            primitive,
                            uri = self.followed.key.uri,
                            "a plugin has no free slot to watch another resource, or is busy: until it has one, clients are not notified when this one changes; subscriptions use at most half of the slots of `runtime.pool`"
                        );
                    }
                }
                WatchEnd::Ended(why) => {
                    tracing::debug!(
                        primitive,
                        why,
                        "a plugin stopped watching a resource, and is asked again"
                    );
                }
            }
            let has_lasted = began.elapsed() > LONGEST_PAUSE;
            pauses = if has_lasted { doubling(PAUSE, LONGEST_PAUSE) } else { pauses };
            sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }

    fn is_in_force(&mut self) -> bool {
        self.in_force.borrow_and_update().contains(&self.followed.key.plugin)
    }

    /// Returns once there is another snapshot.
    async fn another_snapshot(&mut self) {
        // Err: the gateway is shutting down.
        if self.in_force.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Runs one stream, from the request for a worker to its end.
    async fn stream(&mut self) -> WatchEnd {
        let (request, messages) = self.request();
        // The open stream counts as a call in the runtime's load.
        let (mut tunnel, _taken) = match self.place.open(&self.followed.key.plugin, request, messages).await {
            Ok(opened) => opened,
            Err(OpenFault::Rejected(Rejection::Busy { .. })) => return WatchEnd::Full,
            Err(fault) => return WatchEnd::Ended(unopened(&fault)),
        };
        if tunnel.is_ready() {
            self.opened();
        }
        let mut said = ReportedChanges { uris: HashSet::new(), next: Instant::now(), is_warned: false };
        loop {
            tokio::select! {
                heard = tunnel.next() => {
                    if let Err(over) = self.handle_message(heard, &mut tunnel, &mut said).await {
                        self.tell(&mut said);
                        return over;
                    }
                }
                () = sleep_until(said.next), if !said.uris.is_empty() => self.tell(&mut said),
                () = self.another_snapshot() => if !self.is_in_force() {
                    return WatchEnd::Gone;
                },
            }
        }
    }

    /// Builds the request to the runtime and the messages for the worker.
    fn request(&self) -> (AllocateWorkerRequest, [prost_types::Any; 2]) {
        let key = &self.followed.key;
        let request_id = format!("subscription-{:032x}", rand::random::<u128>());
        let primitive = self.followed.primitive.clone();
        let plugin = called_as(&key.plugin, &self.followed.server, &primitive);
        let (request, ctx, init) = self.place.request(plugin, &key.org, &request_id, &primitive);
        let request = AllocateWorkerRequest {
            soft_deadline: prost_types::Duration::try_from(LONGEST).ok(),
            subscription: true,
            ..request
        };
        let work = SubscribeRequest { ctx: Some(ctx), primitive, uri: key.uri.clone(), request_id };
        (request, [init, packed(&work)])
    }

    /// Notes that a worker has the request, and reports a change if something may have been missed.
    fn opened(&mut self) {
        self.is_full = false;
        if std::mem::take(&mut self.missed) {
            self.followed.tell([self.followed.key.uri.clone()]);
        }
    }

    /// Handles what the tunnel received. `Err`: the stream is over.
    async fn handle_message(
        &mut self,
        heard: Result<TunnelMessage, TunnelFault>,
        tunnel: &mut Tunnel,
        said: &mut ReportedChanges,
    ) -> Result<(), WatchEnd> {
        let ended = |why: String| Err(WatchEnd::Ended(why));
        match heard {
            Ok(TunnelMessage::Updated(updated)) => {
                self.note(updated.uri, said);
                Ok(())
            }
            Ok(TunnelMessage::Message(Payload::Failed(failed))) if failed.code == UNSUPPORTED => {
                Err(WatchEnd::Unsupported(failed.message))
            }
            Ok(TunnelMessage::Message(Payload::Failed(failed))) => {
                ended(format!("{}: {}", failed.code, failed.message))
            }
            Ok(TunnelMessage::Event(event)) => self.event(event, tunnel).await,
            Ok(TunnelMessage::End) => ended("the plugin ended the stream".into()),
            // The answer to `init`, and messages without a meaning here.
            Ok(
                TunnelMessage::Message(_)
                | TunnelMessage::Content(_)
                | TunnelMessage::Prompt(_)
                | TunnelMessage::Listed(_),
            ) => Ok(()),
            Err(fault) => ended(fault.to_string()),
        }
    }

    async fn event(&mut self, event: TunnelEvent, tunnel: &mut Tunnel) -> Result<(), WatchEnd> {
        use tunnel_event::Type;
        match event.r#type() {
            Type::TunnelReady => {
                tunnel.ready().await.map_err(|fault| WatchEnd::Ended(fault.to_string()))?;
                self.opened();
                Ok(())
            }
            Type::AllocationQueued | Type::AllocationStarted | Type::Unspecified => Ok(()),
            Type::AdmissionRejected => match Rejection::of_reason(&event.message, None) {
                Rejection::Busy { .. } => Err(WatchEnd::Full),
                _ => Err(WatchEnd::Ended(event.message)),
            },
            ended => Err(WatchEnd::Ended(format!("{}: {}", ended.as_str_name(), event.message))),
        }
    }

    fn note(&self, uri: String, said: &mut ReportedChanges) {
        let uri = if uri.is_empty() { self.followed.key.uri.clone() } else { uri };
        let is_too_much = said.uris.len() > MAX_CHANGED && uri != self.followed.key.uri;
        if uri.len() > MAX_URI || is_too_much && !said.uris.contains(&uri) {
            self.warn(said);
        } else {
            said.uris.insert(uri);
        }
    }

    fn tell(&self, said: &mut ReportedChanges) {
        let foreign = self.followed.tell(said.uris.drain());
        said.next = Instant::now() + BETWEEN;
        if foreign > 0 {
            self.warn(said);
        }
    }

    fn warn(&self, said: &mut ReportedChanges) {
        if !std::mem::replace(&mut said.is_warned, true) {
            tracing::warn!(
                primitive = self.followed.primitive,
                uri = self.followed.key.uri,
                "a plugin reported changes that are dropped: of resources that are not behind its own template, of URIs above 4096 bytes, or of more than 100 resources in 100 ms"
            );
        }
    }
}
