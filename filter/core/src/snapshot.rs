//! The edge snapshot, decoded and indexed once, then only read.
//!
//! [`Snapshot::decode`] does the whole semantic check, so that a bad snapshot is rejected (NACK) and the last good one
//! stays (invariant I-5). Empty bytes are the boot snapshot, which denies everything. Successive snapshots share the
//! parts that a change does not touch.

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, Protocol};
use serde_json::{Map, Value};

use crate::agent::{self, AgentHosts};
use crate::caller::{Caller, marks};
use crate::coarse::CoarseLimits;
use crate::error::SnapshotError;
use crate::exposure::Exceptions;
use crate::machine::MACHINE_ISSUER;
use crate::names;
use crate::origin::{self, Hosts};
use crate::path::PathKind;
use crate::reason::Reason;
use crate::region::Homes;
use crate::revocation::{RecentList, RevocationNotice, Revocations};
use crate::route::Routes;
use crate::server::Server;
use crate::token::issuer::Issuers;
use crate::token::{self, Cause, Hashing, ServerTrust, Tokens};

mod changes;

pub use changes::Changes;

/// An indexed, immutable edge snapshot. Clones share everything.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// False for the boot snapshot only.
    is_pushed: bool,
    revision: u64,
    public_url: Arc<str>,
    dev: bool,
    /// Whether the server `all` stands for all others.
    all_servers: bool,
    unauthenticated_rate: u32,
    servers: Arc<HashMap<Arc<str>, Arc<Server>>>,
    agent_hosts: Arc<AgentHosts>,
    /// Empty if there is none. The server need not exist.
    default_agent: Arc<str>,
    issuers: Arc<Issuers>,
    exceptions: Exceptions,
    limits: Arc<CoarseLimits>,
    routes: Arc<Routes>,
    homes: Arc<Homes>,
    revocations: Revocations,
}

impl Snapshot {
    /// Returns the boot snapshot, in force before the first push; it denies everything.
    pub fn boot() -> Snapshot {
        Snapshot::default()
    }

    /// Decodes and checks `bytes`; empty bytes are the boot snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
        if bytes.is_empty() {
            return Ok(Snapshot::boot());
        }
        let message = prost::Message::decode(bytes).map_err(|e| SnapshotError::Decode(e.to_string()))?;
        Snapshot::from_message(message)
    }

    /// Checks and indexes a decoded message (the gateway receives it inside its own snapshot).
    ///
    /// Rejects a public URL that is not an origin, server names outside `[a-z0-9-]{1,63}` or repeated, unknown or
    /// repeated issuers, keys that do not fit their algorithm, exceptions without an org, for a missing server or
    /// repeated, unsorted revocations, pools and regions that are not valid header values, and two homes for one org.
    pub fn from_message(mut message: EdgeSnapshot) -> Result<Snapshot, SnapshotError> {
        check_public_url(&message.public_url)?;
        let revocations = Revocations::take(&mut message)?;
        let issuers = Issuers::index(&message.issuers)?;
        let mut servers = HashMap::new();
        for entry in &message.servers {
            let url = (message.public_url.as_str(), message.all_servers);
            let server = Server::index(entry, url, message.dev, &issuers)?;
            if servers.insert(server.name.as_str().into(), Arc::new(server)).is_some() {
                return Err(duplicate_server(&entry.name));
            }
        }
        Ok(Snapshot {
            is_pushed: true,
            revision: message.revision,
            agent_hosts: Arc::new(agent::index(&servers, &message.public_url)),
            default_agent: message.default_agent.as_str().into(),
            servers: Arc::new(servers),
            issuers: Arc::new(issuers),
            exceptions: Exceptions::index(&message)?,
            limits: Arc::new(CoarseLimits::index(&message.coarse_limits, message.workers)),
            routes: Arc::new(Routes::index(&message.routes)?),
            homes: Arc::new(Homes::index(&message.regions)?),
            revocations,
            public_url: message.public_url.into(),
            dev: message.dev,
            all_servers: message.all_servers,
            unauthenticated_rate: message.unauthenticated_rate,
        })
    }

    /// Whether root documents may be read under a host name. In production these are public under any name; in
    /// development only the public URL's host, loopback and the hosts of agents may be used, so that a page on a rebound
    /// name cannot read them (DNS rebinding).
    pub(crate) fn is_root_host(&self, host: Option<&[u8]>) -> bool {
        let is_own = || Hosts::new(&[], &self.public_url, true).allow(host);
        !self.dev || is_own() || self.agent_at(host).is_some()
    }

    /// Returns the name of the server that answers A2A where only the host can name one (gRPC, the agent card at the
    /// root): the one server that lists the host, which is not the public URL's, otherwise the default agent.
    pub fn agent(&self, host: Option<&[u8]>) -> Option<&str> {
        let default = || self.server(&self.default_agent).filter(|server| server.has(PathKind::A2a));
        self.agent_at(host).or_else(|| default().map(|server| server.name.as_str()))
    }

    /// Returns host and port at which gRPC reaches a server: the first of its hosts that selects it, otherwise the public URL's
    /// if that does; `None` if nothing does.
    pub fn agent_address(&self, server: &str) -> Option<String> {
        let server = self.server(server)?;
        let selects = |host: &&[u8]| {
            self.agent(Some(*host)) == Some(server.name.as_str()) && server.hosts.allow(Some(*host))
        };
        let public = origin::authority(&self.public_url).as_bytes();
        let host = server.hosts.listed().iter().map(Vec::as_slice).chain([public]).find(selects)?;
        agent::with_port(host, origin::default_port(&self.public_url))
    }

    fn agent_at(&self, host: Option<&[u8]>) -> Option<&str> {
        let host = origin::canonical_host(host?, origin::default_port(&self.public_url));
        self.agent_hosts.get(&host)?.as_deref()
    }

    /// Returns a copy with this list of recent revocations. An older list than the current one is ignored. A list that
    /// relies on a base that has not arrived yet is merged with the current one, so that no revoked token is accepted
    /// in between.
    pub fn with_recent(&self, recent: &Arc<RecentList>) -> Snapshot {
        Snapshot { revocations: self.revocations.with_recent(recent), ..self.clone() }
    }

    /// Returns the current list of recent revocations, which may be a merged one.
    pub fn recent(&self) -> Option<&Arc<RecentList>> {
        self.revocations.recent()
    }

    /// Whether all required revocations are known. Until then no token is accepted, and its caller is asked to retry
    /// ([`crate::Reason::UpstreamUnavailable`]).
    pub fn accepts_tokens(&self) -> bool {
        self.revocations.complete()
    }

    /// Whether this is the deny-all boot snapshot.
    pub fn is_boot(&self) -> bool {
        !self.is_pushed
    }

    /// Returns the snapshot's revision; 0 at boot.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether callers of `org` (empty for a caller without one) may reach `server` over `protocol`. The edge checks
    /// this for callers that it verified; the gateway must check it for those that it verifies itself.
    pub fn exposed(&self, server: &str, org: &str, protocol: Protocol) -> bool {
        let Some(entry) = self.servers.get(server) else { return false };
        self.exceptions.of(org, server, protocol).unwrap_or(entry.default_allow)
    }

    /// Whether the token that this caller came with is invalid by now: revoked, or its issuer is no longer trusted, or
    /// not for this org. Used by work that outlives its request. A caller without a token has nothing to revoke.
    pub fn revoked(&self, caller: &Caller) -> bool {
        self.revocation(caller).is_some()
    }

    /// Returns how a user's tokens issued at that Unix second are revoked, or how the user or org is blocked: for somebody
    /// whose token is not at hand.
    pub fn user_revocation(&self, org: &str, user: &str, issued_at: u64) -> Option<RevocationNotice> {
        self.revocations.find_before(org, user, issued_at)
    }

    /// Returns how the caller's token is invalid by now, in the cases of [`Snapshot::revoked`].
    pub fn revocation(&self, caller: &Caller) -> Option<RevocationNotice> {
        if caller.issuer.is_empty() {
            return None;
        }
        if caller.issuer == MACHINE_ISSUER {
            return self.revocations.find(|| marks(MACHINE_ISSUER, caller, &caller.digest), caller);
        }
        match self.issuers.by_name(&caller.issuer) {
            Some(issuer) if issuer.speaks_for(&caller.org) => {
                self.revocations.find(|| marks(&issuer.iss, caller, &caller.digest), caller)
            }
            Some(_) | None => Some(RevocationNotice::default()),
        }
    }

    /// Returns the time of the newest recent revocation, in Unix milliseconds; 0 if none is known.
    pub fn newest_revocation_ms(&self) -> u64 {
        self.revocations.newest_ms()
    }

    /// Returns the caller of an opaque token that its issuer reports as active (RFC 7662 section 2.2), by the rules for
    /// the claims of a token; used by the gateway. `accepted` are audiences besides the server's own; `*` accepts any
    /// or none.
    pub fn introspected(
        &self,
        (server, issuer): (&str, &str),
        said: &Map<String, Value>,
        (digest, accepted): ([u8; 32], &[String]),
        now: u64,
    ) -> Result<Caller, Cause> {
        let unknown = Cause { claim: "iss", fault: "is not an issuer of this server" };
        let server = self.servers.get(server).ok_or(unknown)?;
        let issuer = self.issuers.by_name(issuer).ok_or(unknown)?;
        token::introspected(issuer, said, (digest, &server.audiences, accepted), now)
    }

    /// Returns the caller of a signed token at `server`, or the reason and cause of its refusal; for an operator who
    /// tries an issuer.
    pub fn verified(&self, server: &str, token: &str, now: u64) -> Result<Caller, (Reason, Option<Cause>)> {
        let server = self.server(server).ok_or((Reason::UnknownServer, None))?;
        let caller = Tokens::new(Hashing::Always).evaluate(self.trust(server), token, now);
        caller.map(Arc::unwrap_or_clone).map_err(|refusal| (refusal.reason, refusal.cause))
    }

    /// Returns the scopes that every caller of `server` needs.
    pub fn required_scopes(&self, server: &str) -> &[String] {
        self.servers.get(server).map(|server| server.scopes.as_slice()).unwrap_or_default()
    }

    /// Whether `server` stands for all others ([`crate::names::ALL_SERVERS`]).
    pub fn is_all_servers(&self, server: &str) -> bool {
        self.all_servers && server == names::ALL_SERVERS
    }

    /// Returns the origin that clients use, without a trailing slash.
    pub fn public_url(&self) -> &str {
        &self.public_url
    }

    pub(crate) fn server(&self, name: &str) -> Option<&Server> {
        self.servers.get(name).map(|server| &**server)
    }

    /// Returns the issuers, revocations and audiences that decide whether a token is valid at `server`.
    pub(crate) fn trust<'a>(&'a self, server: &'a Server) -> ServerTrust<'a> {
        ServerTrust {
            issuers: &self.issuers,
            revocations: &self.revocations,
            of_server: &server.issuers,
            audiences: &server.audiences,
        }
    }

    pub(crate) fn limits(&self) -> &CoarseLimits {
        &self.limits
    }

    /// Returns the requests per second of one network and kind without a valid credential; 0 for no limit.
    pub(crate) fn unauthenticated_rate(&self) -> u32 {
        self.unauthenticated_rate
    }

    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    pub(crate) fn homes(&self) -> &Homes {
        &self.homes
    }
}

fn duplicate_server(server: &str) -> SnapshotError {
    SnapshotError::invalid(format!("servers[{server}]"), "is given twice")
}

/// Checks that the public URL is an http(s) origin: it is the default audience, the default Origin and part of a
/// header.
fn check_public_url(url: &str) -> Result<(), SnapshotError> {
    let authority = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    match authority {
        Some(authority) if !authority.is_empty() && authority.bytes().all(plain) => Ok(()),
        _ => Err(SnapshotError::invalid("public_url".to_owned(), "is not an http(s) origin")),
    }
}

#[cfg(test)]
mod tests;
