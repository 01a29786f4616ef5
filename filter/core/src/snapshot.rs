//! The edge snapshot, decoded and indexed once, then only read.
//!
//! [`Snapshot::decode`] does the whole semantic check, so that a bad snapshot is refused (NACK) and the
//! last good one stays (invariant I-5). No bytes at all is the boot snapshot: everything is denied. What a change leaves
//! as it was is shared by the snapshots before and after it.

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, Protocol};
use serde_json::{Map, Value};

use crate::caller::{Caller, marks};
use crate::coarse::Limits;
use crate::error::SnapshotError;
use crate::exposure::Exceptions;
use crate::machine::MACHINE_ISSUER;
use crate::origin::Hosts;
use crate::region::Homes;
use crate::revocation::{Recent, Revocations};
use crate::route::Routes;
use crate::server::Server;
use crate::token::issuer::Issuers;
use crate::token::{self, Cause, Trust};

mod changes;

pub use changes::Changes;

/// An indexed, immutable edge snapshot. Clones share everything.
#[derive(Clone)]
pub struct Snapshot {
    boot: bool,
    revision: u64,
    public_url: Arc<str>,
    dev: bool,
    servers: Arc<HashMap<Arc<str>, Arc<Server>>>,
    issuers: Arc<Issuers>,
    exceptions: Exceptions,
    limits: Arc<Limits>,
    routes: Arc<Routes>,
    homes: Arc<Homes>,
    revocations: Revocations,
}

impl Snapshot {
    /// Denies everything: what an edge knows before its first push.
    pub fn boot() -> Snapshot {
        Snapshot {
            boot: true,
            revision: 0,
            public_url: Arc::default(),
            dev: false,
            servers: Arc::default(),
            issuers: Arc::default(),
            exceptions: Exceptions::default(),
            limits: Arc::default(),
            routes: Arc::default(),
            homes: Arc::default(),
            revocations: Revocations::default(),
        }
    }

    /// Decodes and checks `bytes`; empty bytes are the boot snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
        if bytes.is_empty() {
            return Ok(Snapshot::boot());
        }
        let message = prost::Message::decode(bytes).map_err(|e| SnapshotError::Decode(e.to_string()))?;
        Snapshot::from_message(message)
    }

    /// Checks and indexes a decoded message (the gateway's copy comes inside its own snapshot).
    ///
    /// Refused: a public URL that is no origin, server names outside `[a-z0-9-]{1,63}` or given twice, unknown
    /// or repeated issuers, keys that do not fit their algorithm, exceptions of no org, about no server or given twice,
    /// unsorted revocations, pools and regions that are no header values, two homes of one org.
    pub fn from_message(mut message: EdgeSnapshot) -> Result<Snapshot, SnapshotError> {
        check_public_url(&message.public_url)?;
        let revocations = Revocations::take(&mut message)?;
        let issuers = Issuers::index(&message.issuers)?;
        let mut servers = HashMap::new();
        for entry in &message.servers {
            let server = Server::index(entry, &message.public_url, message.dev, &issuers)?;
            if servers.insert(server.name.as_str().into(), Arc::new(server)).is_some() {
                return Err(given_twice(&entry.name));
            }
        }
        Ok(Snapshot {
            boot: false,
            revision: message.revision,
            servers: Arc::new(servers),
            issuers: Arc::new(issuers),
            exceptions: Exceptions::index(&message)?,
            limits: Arc::new(Limits::index(&message.coarse_limits, message.workers)),
            routes: Arc::new(Routes::index(&message.routes)?),
            homes: Arc::new(Homes::index(&message.regions)?),
            revocations,
            public_url: message.public_url.into(),
            dev: message.dev,
        })
    }

    /// Host names of requests for root documents: any in production, where they are public; in development the public URL's
    /// and loopback, so that a page on a rebound name reads none (DNS rebinding).
    pub(crate) fn root_hosts(&self) -> Hosts {
        if self.dev { Hosts::new(&[], &self.public_url, true) } else { Hosts::default() }
    }

    /// The same with this list of recent revocations. An older one than the one held is left out; one that leaves out what
    /// the base has yet to bring is joined with the one held, so that nothing revoked comes to life in between.
    pub fn with_recent(&self, recent: &Arc<Recent>) -> Snapshot {
        Snapshot { revocations: self.revocations.with_recent(recent), ..self.clone() }
    }

    /// The list of recent revocations that is held, joined ones included.
    pub fn recent(&self) -> Option<&Arc<Recent>> {
        self.revocations.recent()
    }

    /// Whether all revocations are known that must be: until then no token is accepted, and its caller is told to come
    /// back ([`crate::Reason::UpstreamUnavailable`]).
    pub fn accepts_tokens(&self) -> bool {
        self.revocations.complete()
    }

    /// Whether this is the deny-all boot snapshot.
    pub fn is_boot(&self) -> bool {
        self.boot
    }

    /// The snapshot's revision; 0 at boot.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether callers of `org` ("" for a caller without one) reach `server` over `protocol`. The edge asks
    /// this for callers it judged; the gateway must ask it for those it judges itself.
    pub fn exposed(&self, server: &str, org: &str, protocol: Protocol) -> bool {
        let Some(entry) = self.servers.get(server) else { return false };
        self.exceptions.of(org, server, protocol).unwrap_or(entry.default_allow)
    }

    /// Whether the token this caller came with is dead by now: revoked, or its issuer is trusted no more or not for
    /// this org. For what outlives its request. A caller without a token has nothing to revoke.
    pub fn revoked(&self, caller: &Caller) -> bool {
        if caller.issuer.is_empty() {
            return false;
        }
        if caller.issuer == MACHINE_ISSUER {
            return self.revocations.hit(|| marks(MACHINE_ISSUER, caller, &caller.digest), caller);
        }
        match self.issuers.by_name(&caller.issuer) {
            Some(issuer) if issuer.speaks_for(&caller.org) => {
                self.revocations.hit(|| marks(&issuer.iss, caller, &caller.digest), caller)
            }
            Some(_) | None => true,
        }
    }

    /// The caller of an opaque token of which its issuer says that it is active (RFC 7662 section 2.2), by the rules for
    /// claims of a token; the gateway asks. `accepted` are audiences beside the server's own, `*` any or none.
    pub fn introspected(
        &self,
        (server, issuer): (&str, &str),
        said: &Map<String, Value>,
        (digest, accepted): ([u8; 32], &[String]),
        now: u64,
    ) -> Result<Caller, Cause> {
        let unknown = Cause { claim: "iss", fault: "is no issuer of this server" };
        let server = self.servers.get(server).ok_or(unknown)?;
        let issuer = self.issuers.by_name(issuer).ok_or(unknown)?;
        token::introspected(issuer, said, (digest, &server.audiences, accepted), now)
    }

    /// The scopes every caller of `server` needs.
    pub fn required_scopes(&self, server: &str) -> &[String] {
        self.servers.get(server).map(|server| server.scopes.as_slice()).unwrap_or_default()
    }

    /// The origin clients use, without a trailing slash.
    pub fn public_url(&self) -> &str {
        &self.public_url
    }

    pub(crate) fn server(&self, name: &str) -> Option<&Server> {
        self.servers.get(name).map(|server| &**server)
    }

    /// Whose tokens are good at `server`.
    pub(crate) fn trust<'a>(&'a self, server: &'a Server) -> Trust<'a> {
        Trust {
            issuers: &self.issuers,
            revocations: &self.revocations,
            of_server: &server.issuers,
            audiences: &server.audiences,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    pub(crate) fn homes(&self) -> &Homes {
        &self.homes
    }
}

fn given_twice(server: &str) -> SnapshotError {
    SnapshotError::invalid(format!("servers[{server}]"), "is given twice")
}

/// An http(s) origin: it is the default audience, the default Origin and part of a header.
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
