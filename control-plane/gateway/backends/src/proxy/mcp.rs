//! Calls to an upstream MCP server over Streamable HTTP.
//!
//! Owns: which request a call becomes, in which upstream session, and what its result is. Keeps true: an upstream
//! that lost a session is greeted again, once, and the call continues; progress, logs, errors and questions are
//! relayed; no client's token or session id is forwarded (I-8); messages of the upstream are bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_call::call::CallKind;
use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::started::StartGuard;
use asp_call::execution::{Execution, ResourceSubscription, SessionNote, SubscriptionGuard};
use asp_call::telemetry::log_limit::LogLimit;
use asp_call::telemetry::metrics::UpstreamMetrics;
use asp_mcp_client::client::modern::{Eras, mirrored};
use asp_mcp_client::client::session::Session;
use asp_mcp_client::client::tasks::ClientTasks;
use asp_mcp_client::client::{Client, ClientFault, Exchange};
use asp_outbound::{Outbound, OutboundError, Requester};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Primitive, ProxyMcp};
use asp_snapshot::Snapshot;
use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::accepted::pinned::{self, PinnedItems};
use crate::accepted::watching::{Upstream, Watches};
use crate::backend::{Backend, misplaced, mode};
use crate::conversation::downstream::{Clients, capabilities};
use crate::conversation::results::output;
use crate::conversation::upstream_call::{self, by_status_alone, client_params, refusal};
use crate::outbound::auth::{self, AuthFault, Authorizer};
use crate::outbound::breaker::Breakers;
use crate::outbound::refused::Meaning;

mod completion;
mod following;
mod polling;
mod sessions;
mod standing;

use following::Followings;
use polling::OverHttp;
use sessions::{Sessions, Slot};

/// Longest silence of a connection; the silence of an upstream within a call is bounded there.
const SILENCE: Duration = Duration::from_secs(3600);

/// The backend of upstream MCP servers.
pub struct McpBackend {
    outbound: Outbound,
    breakers: Arc<Breakers>,
    sessions: Arc<Sessions>,
    watches: Watches,
    followings: Followings,
    /// Rate limit of the warning that too many resources are followed.
    crowded: LogLimit,
    tasks: Arc<ClientTasks>,
    eras: Eras,
    authorizer: Arc<Authorizer>,
}

impl McpBackend {
    pub(crate) fn new(
        breakers: Arc<Breakers>,
        metrics: Arc<UpstreamMetrics>,
        authorizer: Arc<Authorizer>,
    ) -> Result<McpBackend, OutboundError> {
        Ok(McpBackend {
            outbound: Outbound::with_silence(SILENCE)?,
            breakers,
            sessions: Arc::default(),
            watches: Watches::of(Arc::new(PinnedItems::counted_by(metrics)), polling::PATIENCE),
            followings: Followings::default(),
            crowded: LogLimit::default(),
            tasks: Arc::default(),
            eras: Eras::default(),
            authorizer,
        })
    }

    /// Returns the accepted items of all upstreams, including packages.
    pub(crate) fn pinned(&self) -> Arc<PinnedItems> {
        self.watches.items.clone()
    }

    /// Returns a client for the call's upstream that authenticates as the call.
    async fn proving(&self, target: &ProxyMcp, execution: &Execution) -> Result<Client, AuthFault> {
        let call = &execution.call;
        let primitive = &call.entry.primitive;
        let client = self
            .client(&target.url, &execution.snapshot, (&call.server.message.name, primitive))
            .map_err(|error| AuthFault { refusal: Refusal::Upstream(error.to_string()), passes: false })?;
        let mut headers = self.authorizer.headers(call, &execution.snapshot, &client.url).await?;
        // A session's connections serve several calls; `_meta` carries the trace of each request.
        headers.remove("traceparent");
        client.proof.replace(headers);
        Ok(client)
    }

    /// Authenticates and runs one call.
    async fn attempt(
        &self,
        (target, rejected): (&ProxyMcp, &AtomicBool),
        execution: &Execution,
        started: &mut StartGuard,
    ) -> Result<Output, Refusal> {
        let call = &execution.call;
        let client = self.proving(target, execution).await;
        let client = client.map_err(|unproved| unproved.refusal)?;
        // As for HTTP, a breaker's refusal is this gateway's answer.
        started.mark_sent();
        let permit = self.breakers.enter_for(call, &target.url)?;
        let result = self.ask_in_session((&client, target, rejected), execution, started).await;
        permit.leave(call, &result);
        result
    }

    /// Runs one call; an upstream session that has ended is reopened once.
    async fn ask_in_session(
        &self,
        (client, target, rejected): (&Client, &ProxyMcp, &AtomicBool),
        execution: &Execution,
        started: &mut StartGuard,
    ) -> Result<Output, Refusal> {
        let call = &execution.call;
        let auth = call.entry.primitive.service_auth.as_ref();
        let declared = capabilities(call.abilities(), &target.pages);
        let kind = format!("{declared} {}", auth::name_of(auth));
        let slot = self.sessions.slot(client.url.as_str(), call, &kind);
        let opens = slot.try_lock().is_ok_and(|held| held.is_none());
        let name = pinned::upstream(&target.url, auth);
        let upstream = Upstream { name: &name, place: client.url.as_str(), again: opens };
        self.watches.enter(upstream, || OverHttp::of(client.apart())).await;
        if !self.watches.items.offers(&call.server.message.name, &call.entry.primitive) {
            // An item that the upstream no longer lists is as unknown as one that was never here (I-10).
            started.undelivered();
            return Err(Refusal::Unknown);
        }
        let downstream = Arc::new(Clients::of(call.clone(), &target.pages));
        let asking =
            McpCall { client, target, execution, downstream, declared: &declared, slot: &slot, rejected };
        let session = self.open(&asking).await?;
        match self.ask(&asking, &session).await {
            Ok(output) => Ok(output),
            Err(fault) => Box::pin(self.retry(&asking, &session, fault)).await,
        }
    }

    /// Retries once if the fault was the session's and the call may be repeated; otherwise refuses the call.
    async fn retry(
        &self,
        asking: &McpCall<'_>,
        session: &Arc<Session>,
        fault: ClientFault,
    ) -> Result<Output, Refusal> {
        let McpCall { target, execution, slot, .. } = asking;
        let may_repeat = execution.call.may_repeat();
        let is_lost = match &fault {
            ClientFault::SessionEnded => true,
            ClientFault::SessionRefused { did_nothing, is_named: true, .. } => *did_nothing || may_repeat,
            _ => false,
        };
        let answered = match fault {
            _ if is_lost => {
                forget(slot, session).await;
                let next = self.open(asking).await?;
                self.ask(asking, &next).await
            }
            ClientFault::SessionRefused { fault, did_nothing, is_named: false }
                if did_nothing || may_repeat =>
            {
                self.ask_apart(asking, session, *fault).await
            }
            fault => Err(fault),
        };
        match answered {
            Ok(output) => Ok(output),
            Err(fault) => {
                let fault = fault.of_request();
                self.judged(asking, &fault).await;
                Err(refusal(&execution.call, &target.pages, fault))
            }
        }
    }

    /// Asks in a new session after a refusal that does not mention the session. If the new session gets an answer, it
    /// replaces the previous one; otherwise the previous one is kept, with the user's state in it. The session that
    /// is given up is ended at its server.
    async fn ask_apart(
        &self,
        asking: &McpCall<'_>,
        before: &Arc<Session>,
        refused: ClientFault,
    ) -> Result<Output, ClientFault> {
        let Ok(session) = self.begin(asking.client, asking.declared).await else { return Err(refused) };
        let answered = self.ask(asking, &session).await;
        match answered {
            Err(ClientFault::SessionRefused { .. }) => return Err(refused),
            Ok(_) | Err(ClientFault::Error { .. }) => {
                let mut held = asking.slot.lock().await;
                if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, before)) {
                    *held = Some(session);
                }
            }
            Err(_) => {}
        }
        answered
    }

    /// Sends the call's request in this session.
    async fn ask(&self, asking: &McpCall<'_>, session: &Session) -> Result<Output, ClientFault> {
        let McpCall { client, target, execution, .. } = asking;
        let call = &execution.call;
        session.proves_as(client);
        let (method, mut params) = request(target, execution);
        if method == completion::METHOD && !session.offers.completions {
            return Ok(Output::completion(Vec::new(), Some(0), false));
        }
        let id = self.tasks.next_id();
        let traceparent = self.authorizer.tells_trace().then(|| call.trace.traceparent());
        let mut meta = Map::from_iter([("progressToken".to_owned(), id.into())]);
        meta.extend(traceparent.map(|trace| ("traceparent".to_owned(), trace.into())));
        params.insert("_meta".into(), meta.into());
        let exchange = Exchange {
            id,
            method,
            params: Value::Object(params),
            sent: client_params(execution),
            headers: mirrored(call.entry.param_headers.mirror(&execution.arguments)),
            downstream: asking.downstream.clone(),
            cancelled: call.cancellation(),
        };
        let result = client.request(session, exchange).await?;
        Ok(match method {
            completion::METHOD => completion::output(&result),
            _ => output(call.entry.primitive.kind(), call.entry.output.as_ref(), &result.sent)
                .map_err(ClientFault::Lost)?,
        })
    }

    fn client(
        &self,
        url: &str,
        snapshot: &Snapshot,
        (server, primitive): (&str, &Primitive),
    ) -> Result<Client, OutboundError> {
        let by = Requester { server, primitive: &primitive.id };
        let destination = self.outbound.destination(url, &snapshot.upstreams, by)?;
        Ok(Client {
            http: destination.client.clone(),
            url: destination.url,
            tasks: self.tasks.clone(),
            eras: self.eras.clone(),
            proof: standing::proof(&self.authorizer, primitive.service_auth.as_ref()),
        })
    }

    /// Reports to the authorizer that the upstream refused the call's credentials, if it did.
    async fn judged(&self, asking: &McpCall<'_>, fault: &ClientFault) {
        let Execution { call, snapshot, .. } = asking.execution;
        let ClientFault::Refused { status, .. } = fault else { return };
        if self.authorizer.is_rejection(call, *status)
            && self.authorizer.refused(call, snapshot).await
            && self.authorizer.is_linked(call)
        {
            asking.rejected.store(true, Ordering::Release);
        }
    }

    async fn open(&self, asking: &McpCall<'_>) -> Result<Arc<Session>, Refusal> {
        let McpCall { client, slot, declared, execution, .. } = asking;
        let mut held = slot.lock().await;
        if let Some(session) = &*held {
            return Ok(session.clone());
        }
        // Nothing of the call is delivered yet, whatever fails here.
        let begun = self.begin(client, declared).await;
        if let Err(fault) = &begun
            && self.authorizer.is_linked(&execution.call)
        {
            self.judged(asking, fault).await;
        }
        let session = begun.map_err(|fault| match fault {
            ClientFault::Refused { status, wait, said, .. } => match by_status_alone(status, wait, &said) {
                Meaning::Refused(refusal) => refusal,
                Meaning::Open(why) => Refusal::Upstream(format!("handshake: {why}")),
            },
            fault => Refusal::Upstream(format!("handshake: {fault}")),
        })?;
        *held = Some(session.clone());
        Ok(session)
    }

    /// Opens a session, and listens to its server's own messages.
    async fn begin(&self, client: &Client, declared: &Value) -> Result<Arc<Session>, ClientFault> {
        let mut session = client.initialize(declared.clone()).await?;
        session.listen().await;
        Ok(Arc::new(session))
    }
}

#[async_trait]
impl Backend for McpBackend {
    /// Sends one request to an upstream MCP server.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let Some(Mode::ProxyMcp(target)) = mode(&execution.call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        let mut started = execution.started();
        let rejected = AtomicBool::new(false);
        let result = self.attempt((target, &rejected), execution, &mut started).await;
        if !rejected.load(Ordering::Acquire) {
            return result;
        }
        // The upstream certainly did nothing: its caller is asked to link the account again, once.
        started.undelivered();
        Box::pin(self.attempt((target, &rejected), execution, &mut started)).await
    }

    fn answers(&self, kind: &CallKind) -> bool {
        !matches!(kind, CallKind::List)
    }

    /// Hides items that an upstream no longer lists as they were accepted.
    fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        self.watches.items.offers(server, primitive)
    }

    fn offers_changed(&self) -> u64 {
        self.watches.items.changes()
    }

    /// Sets the accepted items of a new snapshot.
    fn prepare(&self, snapshot: &Snapshot) {
        self.watches.items.replace(snapshot.servers().flat_map(|server| {
            let name = server.message.name.as_str();
            server.entries.iter().map(move |entry| (name, &entry.primitive))
        }));
    }

    /// Starts to follow changes of an upstream's resource.
    fn watch(&self, subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        let ResourceSubscription { primitive, server, snapshot, .. } = subscribed;
        let Mode::ProxyMcp(target) = mode(primitive)? else { return None };
        let auth = primitive.service_auth.as_ref();
        let client = self.client(&target.url, snapshot, (server, primitive)).ok()?;
        if !self.authorizer.stands((server, &primitive.id), auth, &client.url) {
            tracing::debug!(
                primitive = primitive.id,
                "clients are not notified when a resource changes whose upstream requires the caller's identity"
            );
            return None;
        }
        let name = pinned::upstream(&target.url, auth);
        let following = self.followings.follow(&name, client, &subscribed);
        if following.is_none()
            && let Some(count) = self.crowded.count()
        {
            tracing::warn!(
                url = target.url,
                count,
                "clients are not notified when this resource changes: too many resources of upstreams are followed"
            );
        }
        following.map(|following| Box::new(following) as SubscriptionGuard)
    }

    /// Passes a client's notification about its session on to its upstream sessions.
    fn handle_session_note(&self, session: &str, said: SessionNote) {
        // Upstream sessions of calls without a session are not shared.
        if session.is_empty() {
            return;
        }
        match said {
            SessionNote::Ended => self.sessions.end(session),
            SessionNote::RootsChanged => {
                for slot in self.sessions.of(session) {
                    // A session that is being opened will ask for the roots later.
                    let open = slot.try_lock().ok().and_then(|held| held.clone());
                    open.iter().for_each(|open| open.roots_changed());
                }
            }
        }
    }

    /// Ends every session, and returns once all closing requests are sent.
    async fn drained(&self) {
        self.watches.clear();
        self.followings.clear();
        self.sessions.clear();
        self.tasks.drained().await;
    }
}

/// One call with its upstream and session slot.
struct McpCall<'a> {
    client: &'a Client,
    target: &'a ProxyMcp,
    execution: &'a Execution,
    downstream: Arc<Clients>,
    /// Capabilities that its sessions declare.
    declared: &'a Value,
    /// Slot of its session.
    slot: &'a Slot,
    /// Set if the upstream rejected the token of the caller's linked account, which is dead since then.
    rejected: &'a AtomicBool,
}

/// Removes a session that the server has ended from its slot, unless another call has already replaced it.
async fn forget(slot: &Slot, session: &Arc<Session>) {
    let mut held = slot.lock().await;
    if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, session)) {
        *held = None;
    }
}

fn request(target: &ProxyMcp, execution: &Execution) -> (&'static str, Map<String, Value>) {
    match execution.call.kind.completed_argument() {
        Some(argument) => (completion::METHOD, completion::request(target, execution, argument)),
        None => upstream_call::request(&target.tool, execution),
    }
}
