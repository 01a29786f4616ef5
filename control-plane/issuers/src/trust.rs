//! The issuers in force: from the operator's file, from the store, and in development the development issuer.
//!
//! Owns how they combine. Keeps true: the operator's file takes precedence over issuers in the store with the same name
//! or `iss`; an invalid document is left out and reported, the others are in force; keys that were fetched too long ago
//! are no longer in force; the state in force never goes back to an older one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot;
use asp_store::control::{ControlState, IssuerKeysRecord, Side};
use parking_lot::RwLock;
use prost::Message as _;

use super::clock::Clock;
use super::compile::{self, AdminLogin};
use super::document::{Document, File, KeySource};
use super::faults::ISSUERS_BYTES;
use super::keys::{self, Key};
use super::metadata::IssuerMetadata;
use crate::trusted_issuer::TrustedIssuer;

/// Time for which fetched keys are in force if their issuer cannot be reached: an hour after their next fetch was due
/// ([`super::refresh::FRESH`]).
pub const STALE: Duration = Duration::from_secs(3_600 + 600);

/// Issuers with which this process was started.
#[derive(Clone, Default)]
pub struct StaticIssuers {
    pub file: File,
    /// The development issuer.
    pub clients: Vec<snapshot::Issuer>,
    /// Logins of clients at those.
    pub access: Vec<snapshot::IssuerAccess>,
    pub admins: Vec<TrustedIssuer>,
    /// Whether an audience of token exchange without `for` serves every primitive.
    pub dev: bool,
}

/// An issuer whose keys are fetched.
#[derive(Clone, Debug)]
pub struct FetchedIssuer {
    pub side: Side,
    pub name: String,
    pub document: Document,
    pub source: KeySource,
    /// Time of the last fetch, in Unix milliseconds; 0 if never.
    pub fetched_at: u64,
    /// Number of keys in force.
    pub keys: usize,
}

/// An issuer that is not in force as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInForce {
    pub side: Side,
    pub name: String,
    pub fault: String,
}

/// Issuers in force, in the forms for edges, gateways and the admin API.
#[derive(Default)]
pub struct InForce {
    /// Revision of the store from which it was built.
    revision: u64,
    pub clients: Vec<snapshot::Issuer>,
    pub access: Vec<snapshot::IssuerAccess>,
    /// Documents of client issuers, which list the audiences that servers may accept; the development issuer has none.
    pub documents: Vec<Document>,
    pub admins: Vec<TrustedIssuer>,
    pub logins: Vec<AdminLogin>,
    pub wanted: Vec<FetchedIssuer>,
}

impl InForce {
    /// Returns the `iss` of every trusted issuer, for clients and for admins.
    pub fn all(&self) -> Vec<String> {
        let clients = self.clients.iter().map(|issuer| &issuer.iss);
        let all: std::collections::BTreeSet<&String> =
            clients.chain(self.admins.iter().map(|key| &key.rules.iss)).collect();
        all.into_iter().cloned().collect()
    }

    /// Returns the names by which servers refer to client issuers, each with the facts that a server's evaluation
    /// depends on: whether opaque tokens are introspected there, and which audiences it lists.
    pub fn names(&self) -> BTreeMap<String, String> {
        let names = self.clients.iter().map(|issuer| (issuer.name.clone(), String::new()));
        let mut names: BTreeMap<String, String> = names.collect();
        for access in self.access.iter().filter(|access| access.introspection.is_some()) {
            names.entry(access.issuer.clone()).or_default().push_str("is asked ");
        }
        let lists_some =
            |document: &&Document| !document.audiences.is_empty() || !document.server_audiences.is_empty();
        for document in self.documents.iter().filter(lists_some) {
            let lists = format!("lists {:?} {:?}", document.audiences, document.server_audiences);
            names.entry(document.name.clone()).or_default().push_str(&lists);
        }
        names
    }
}

/// Holder of the issuers in force; cheap to clone.
#[derive(Clone)]
pub struct Trust {
    given: Arc<StaticIssuers>,
    in_force: Arc<RwLock<Arc<InForce>>>,
    /// Clock for the age of keys.
    clock: Clock,
}

impl Trust {
    pub fn new(given: StaticIssuers) -> Trust {
        let trust = Trust { given: Arc::new(given), in_force: Arc::default(), clock: Clock::default() };
        // Issuers given at start are in force before the store is read.
        trust.take(&ControlState::default(), 0);
        trust
    }

    pub fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read())
    }

    /// Returns the clock for the age of keys.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the operator's file, or development, defines an issuer with this name.
    pub fn is_configured(&self, side: Side, name: &str) -> bool {
        self.configured_documents().any(|(known, document)| known == side && document.name == name)
            || (side == Side::Clients && self.given.clients.iter().any(|issuer| issuer.name == name))
    }

    /// Whether an audience of token exchange without `for` serves every primitive.
    pub fn is_development(&self) -> bool {
        self.given.dev
    }

    /// Whether another issuer of this side has this `iss`.
    pub fn has_iss(&self, side: Side, iss: &str) -> bool {
        match side {
            Side::Clients => self.in_force().clients.iter().any(|issuer| issuer.iss == iss),
            Side::Admins => self.in_force().admins.iter().any(|key| key.rules.iss == iss),
        }
    }

    fn configured_documents(&self) -> impl Iterator<Item = (Side, &Document)> {
        let clients = self.given.file.clients.iter().map(|document| (Side::Clients, document));
        clients.chain(self.given.file.admins.iter().map(|document| (Side::Admins, document)))
    }

    /// Combines the issuers with those of the store at `now` (Unix milliseconds), unless a newer state was taken
    /// before; returns those that are not in force.
    pub fn take(&self, state: &ControlState, now: u64) -> Vec<NotInForce> {
        let mut builder = TrustBuilder {
            state,
            now,
            dev: self.given.dev,
            in_force: InForce {
                revision: state.revision,
                clients: self.given.clients.clone(),
                access: self.given.access.clone(),
                admins: self.given.admins.clone(),
                ..InForce::default()
            },
            names: self.given.clients.iter().map(|issuer| (Side::Clients, issuer.name.clone())).collect(),
            isses: HashSet::new(),
            faults: Vec::new(),
            bytes: 0,
        };
        builder.isses.extend(self.given.clients.iter().map(|issuer| (Side::Clients, issuer.iss.clone())));
        builder.isses.extend(self.given.admins.iter().map(|key| (Side::Admins, key.rules.iss.clone())));
        for (side, document) in self.configured_documents() {
            builder.add(side, document);
        }
        for record in &state.issuers {
            match serde_json::from_str::<Document>(&record.document) {
                Ok(document) => builder.add(record.side, &Document { name: record.name.clone(), ..document }),
                Err(error) => builder.fault(record.side, &record.name, error.to_string()),
            }
        }
        // A snapshot is built from a state read a moment ago; an admin's later change may already be in force.
        let mut in_force = self.in_force.write();
        if builder.in_force.revision >= in_force.revision {
            *in_force = Arc::new(builder.in_force);
        }
        builder.faults
    }
}

struct TrustBuilder<'a> {
    state: &'a ControlState,
    now: u64,
    in_force: InForce,
    /// Value of [`StaticIssuers::dev`].
    dev: bool,
    names: HashSet<(Side, String)>,
    isses: HashSet<(Side, String)>,
    faults: Vec<NotInForce>,
    bytes: usize,
}

impl TrustBuilder<'_> {
    fn fault(&mut self, side: Side, name: &str, fault: String) {
        self.faults.push(NotInForce { side, name: name.to_owned(), fault });
    }

    fn add(&mut self, side: Side, document: &Document) {
        if !self.names.insert((side, document.name.clone()))
            || !self.isses.insert((side, document.iss.clone()))
        {
            let fault = "another issuer, of the operator's file or older, has its name or its iss";
            return self.fault(side, &document.name, fault.into());
        }
        if let Err(fault) = self.compile(side, document) {
            self.fault(side, &document.name, fault);
        }
    }

    fn compile(&mut self, side: Side, document: &Document) -> Result<(), String> {
        let source = document.source();
        let record = source.url().and_then(|url| self.record(side, &document.name, url));
        let fetched: Option<IssuerMetadata> =
            record.and_then(|record| serde_json::from_str(&record.content).ok());
        let is_stale =
            record.is_some_and(|record| record.fetched_at.saturating_add(millis(STALE)) <= self.now);
        let (keys, unusable): (Vec<Key>, Vec<String>) = match (&document.jwks, &fetched) {
            (Some(jwks), _) => (keys::read_keys(document, &jwks.keys)?, Vec::new()),
            (None, Some(fetched)) if !is_stale => keys::usable_keys(document, &fetched.jwks.keys),
            (None, _) => (Vec::new(), Vec::new()),
        };
        if source.url().is_some() {
            self.in_force.wanted.push(FetchedIssuer {
                side,
                name: document.name.clone(),
                document: document.clone(),
                source,
                fetched_at: record.map_or(0, |record| record.fetched_at),
                keys: keys.len(),
            });
            if is_stale {
                let fault = "its keys were fetched too long ago and count no more: it cannot be reached";
                self.fault(side, &document.name, fault.into());
            }
        }
        for fault in unusable {
            tracing::debug!(issuer = %document.name, %fault, "a published key of an issuer is not used");
        }
        match side {
            Side::Clients => {
                let issuer = compile::client(document, &keys)?;
                let bytes = issuer.encoded_len();
                if self.bytes + bytes > ISSUERS_BYTES {
                    return Err(format!("all client issuers together take more than {ISSUERS_BYTES} bytes"));
                }
                self.bytes += bytes;
                self.in_force.clients.push(issuer);
                self.in_force.documents.push(Document { jwks: None, ..document.clone() });
                // No login is possible before the first discovery.
                if document.jwks.is_some() || fetched.is_some() {
                    self.in_force.access.extend(compile::access(document, fetched.as_ref(), self.dev)?);
                }
            }
            Side::Admins => {
                self.in_force.admins.extend(compile::admin(document, &keys)?);
                self.in_force.logins.extend(compile::admin_login(document, fetched.as_ref()));
            }
        }
        Ok(())
    }

    fn record(&self, side: Side, name: &str, url: &str) -> Option<&IssuerKeysRecord> {
        let is_its = |record: &&IssuerKeysRecord| (record.side, record.name.as_str()) == (side, name);
        self.state.issuer_keys.iter().find(is_its).filter(|record| record.source == url)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
